-- Requeues a running trial at the front of its queue, uncharged.
-- KEYS prefix
-- ARGV {sweep, number, attempt, reason, nonce (of the claim),
--      left_ms (of the worker's time, if that is up; optional)}
-- Replies: released | already | stale | unknown, then queue and tickets

local args = cjson.decode(ARGV[1])
local sid, n, attempt, reason = args.sweep, args.number, args.attempt, args.reason
is_full()  -- the writes below succeed on a full server
local s, t = read_sweep(sid, 'least_ms'), read_trial(sid, n, 'unbegun', 'ran_ms', 'least_ms')
if not t.state or not s.queue then return {'unknown', '', 0} end
if t.attempt ~= attempt or is_other_claim(t, args.nonce) then return {'stale', '', 0} end
if t.state ~= 'running' then return {'already', '', 0} end
local want = sweeps().changing(s, function()
  -- A running trial of a stopped sweep ends instead of being requeued.
  if not ends().end_if_stopped(s, t) then requeue(s, t, reason, false) end
  if reason == 'refused' or reason == 'data_missing' then  -- the training never began
    unset(t, 'ran_ms')
    add(t, 'unbegun', 1)
  end
  if reason == 'time_up' and not t.checkpoint and t.ran_ms then  -- the next attempt begins again, and takes longer
    local least = t.ran_ms + (args.left_ms or 0)
    for _, record in ipairs({s, t}) do
      if least > tonumber(record.least_ms or 0) then set(record, 'least_ms', int(least)) end
    end
  end
  save(t)
end)
return {'released', want[1], want[2]}
