-- Requeues a running trial at the front of its queue, uncharged.
-- KEYS prefix
-- ARGV sweep, number, attempt, reason, the claim's nonce
-- Replies: released | already | stale | unknown, then queue and tickets

local sid, n, attempt, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
is_full()  -- the writes below succeed on a full server
local s, t = read_sweep(sid), read_trial(sid, n, 'unbegun', 'ran_ms')
if not t.state or not s.queue then return {'unknown', '', 0} end
if t.attempt ~= attempt or is_other_claim(t, ARGV[5]) then return {'stale', '', 0} end
if t.state ~= 'running' then return {'already', '', 0} end
local want = sweeps().changing(s, function()
  -- A running trial of a stopped sweep ends instead of being requeued.
  if not ends().end_if_stopped(s, t) then requeue(s, t, reason, false) end
  if reason == 'refused' or reason == 'data_missing' then  -- the training never began
    unset(t, 'ran_ms')
    add(t, 'unbegun', 1)
  end
  save(t)
end)
return {'released', want[1], want[2]}
