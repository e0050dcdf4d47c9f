-- Transitions of a trial: out of running, back to the queue, into a terminal state and the ranking.
-- hpq/store/scripts.py prepends this text to every script, after points.lua and files.lua.

-- Ends the lease of the running attempt; `seen_ms` is when it was last known to run.
local function leave_running(sid, n, seen_ms)
  redis.call('ZREM', key('leases'), sid .. '/' .. n)
  if redis.call('ZREM', sweep_key(sid, 'running'), n) == 0 then return end
  count_busy(sid, -1)
  local t = trial_key(sid, n)
  redis.call('HSET', t, 'ran_ms', int(seen_ms - tonumber(redis.call('HGET', t, 'claimed_ms'))))
end

-- Adds the time of an attempt to before_ms, the time of all attempts before the next one.
local function add_attempt_time(t)
  local ran = redis.call('HGET', t, 'ran_ms')
  if ran then redis.call('HINCRBY', t, 'before_ms', ran) end
  redis.call('HDEL', t, 'ran_ms')
end

-- Requeues a trial at the front. The attempt is closed, unless its lease was reaped: then its worker
-- may come back. `...` are further fields of the event.
local function requeue(sid, n, attempt, reason, reaped, ...)
  local t = trial_key(sid, n)
  leave_running(sid, n, reaped and tonumber(redis.call('HGET', t, 'beat_ms')) or NOW)
  redis.call('ZADD', sweep_key(sid, 'waiting'), n - FRONT, n)
  redis.call('HDEL', t, reaped and 'closed' or 'reaped')
  redis.call('HSET', t, 'state', 'queued', reaped and 'reaped' or 'closed', attempt)
  event(sid, 'requeued', n, attempt, 'reason', reason, ...)
end

-- Adds a trial to the ranking, or removes it (objective nil). Replicates have consecutive numbers;
-- `means` has the number of the first with the mean of all.
local function rank(sid, n, objective)
  local ranking = sweep_key(sid, 'rank')
  if objective then redis.call('ZADD', ranking, objective, n) else redis.call('ZREM', ranking, n) end
  local each = tonumber(redis.call('HGET', sweep_key(sid), 'replicates') or 1)
  if each < 2 then return end
  local first, sum, count = n - (n - 1) % each, 0, 0
  for i = first, first + each - 1 do
    local score = redis.call('ZSCORE', ranking, i)
    if score then sum, count = sum + score, count + 1 end
  end
  local means = sweep_key(sid, 'means')
  if count == 0 then redis.call('ZREM', means, first) return end
  redis.call('ZADD', means, string.format('%.17g', sum / count), first)
end

-- Ends a trial. `...` are further fields of both the trial's hash and the event.
local function finish(sid, n, attempt, state, ...)
  leave_running(sid, n, NOW)
  redis.call('ZREM', sweep_key(sid, 'waiting'), n)
  redis.call('HDEL', trial_key(sid, n), 'reaped')
  redis.call('HSET', trial_key(sid, n), 'state', state, 'closed', attempt, 'ended_ms', int(NOW), ...)
  redis.call('ZADD', sweep_key(sid, 'ended'), int(NOW), n)
  redis.call('HINCRBY', sweep_key(sid), 'n_' .. state, 1)
  local files = redis.call('HMGET', trial_key(sid, n), 'checkpoint', 'artifacts')
  if files[1] or files[2] then redis.call('SADD', sweep_key(sid, 'files'), n) end
  event(sid, state, n, attempt, ...)
  record_bytes(sid, n, pack_points(sid, n))
end
