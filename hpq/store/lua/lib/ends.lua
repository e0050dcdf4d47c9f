-- Ends trials without their workers. hpq/store/scripts.py prepends this text to the scripts that need it.

-- Cancels a waiting trial. A trial that was never claimed has no hash, so it is dropped.
local function cancel_waiting(sid, n)
  local attempt = redis.call('HGET', trial_key(sid, n), 'attempt')
  if attempt then
    finish(sid, n, attempt, 'cancelled')
  else
    redis.call('ZREM', sweep_key(sid, 'waiting'), n)
    redis.call('ZADD', sweep_key(sid, 'dropped'), n, n)
    event(sid, 'cancelled', n, 0)
  end
end

-- True if a trial's lease was lost and no worker has claimed it since: its worker may come back.
local function is_lost(sid, n)
  local f = redis.call('HMGET', trial_key(sid, n), 'attempt', 'reaped')
  return f[1] and f[1] == f[2]
end

-- Cancels all waiting trials and returns their number. `awaits`: lost trials stay until the reaper
-- ends them (reap.lua).
local function cancel_all_waiting(sid, awaits)
  local waiting, dropped = sweep_key(sid, 'waiting'), sweep_key(sid, 'dropped')
  local requeued, lost = redis.call('ZRANGEBYSCORE', waiting, '-inf', 0), {}
  for _, n in ipairs(requeued) do
    if awaits and is_lost(sid, n) then
      redis.call('ZREM', waiting, n)
      lost[#lost + 1] = n
    else
      cancel_waiting(sid, n)
    end
  end
  local rest = redis.call('ZCARD', waiting)
  if rest > 0 then
    -- The smaller goes into the larger: a million trials that wait take no time, and all end at once.
    local small, large = dropped, waiting
    if redis.call('ZCARD', dropped) > rest then small, large = waiting, dropped end
    local moved = redis.call('ZRANGE', small, 0, -1, 'WITHSCORES')
    for i = 1, #moved, 2 do redis.call('ZADD', large, moved[i + 1], moved[i]) end
    redis.call('UNLINK', small)
    if large == waiting then redis.call('RENAME', waiting, dropped) end
  end
  for _, n in ipairs(lost) do redis.call('ZADD', waiting, n - FRONT, n) end
  return #requeued - #lost + rest
end

-- Ends a running trial whose worker is gone if the trial or its sweep was stopped; true if so. A
-- pruned trial keeps its last value.
local function end_if_stopped(sid, n, attempt)
  local t, flag = trial_key(sid, n), redis.call('HGET', sweep_key(sid), 'flag')
  local f = redis.call('HMGET', t, 'stop', 'objective', 'step', 'best')
  if f[1] == 'prune' then
    if (redis.call('HGET', sweep_key(sid), 'keep') or '') == '' then  -- as commit does
      forget_files(sid, n, 'checkpoint', 'checkpoint_step')
    end
    finish(sid, n, attempt, 'pruned', 'objective', f[2] or '', 'step', f[3] or '0',
      'best', f[4] or '')
    if (f[2] or '') ~= '' then rank(sid, n, f[2]) end
  elseif f[1] == 'stop' or flag == 'stopped' or flag == 'cancelled' then
    finish(sid, n, attempt, 'cancelled')
  else
    return false
  end
  release_files(sid, n, f[1] == 'prune')
  return true
end
