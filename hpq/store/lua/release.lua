-- Requeues a running trial at the front of its queue, uncharged.
-- KEYS prefix
-- ARGV sweep, number, attempt, reason, the claim's nonce
-- Replies: released | already | stale | unknown, then queue and tickets

local sid, n, attempt, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
is_full()  -- the writes below succeed on a full server
local f = redis.call('HMGET', trial_key(sid, n), 'state', 'attempt', 'nonce')
if not f[1] or not sweep_exists(sid) then return {'unknown', '', 0} end
if f[2] ~= attempt or is_other_claim(f[3], ARGV[5]) then return {'stale', '', 0} end
if f[1] ~= 'running' then return {'already', '', 0} end
local want = changing(sid, function()
  -- A running trial of a stopped sweep ends instead of being requeued.
  if not end_if_stopped(sid, n, attempt) then requeue(sid, n, attempt, reason, false) end
  if reason == 'refused' or reason == 'data_missing' then  -- the training never began
    redis.call('HDEL', trial_key(sid, n), 'ran_ms')
    redis.call('HINCRBY', trial_key(sid, n), 'unbegun', 1)
  end
end)
return {'released', want[1], want[2]}
