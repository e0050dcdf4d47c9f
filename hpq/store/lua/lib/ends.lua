-- What ends trials without a word of their workers. hpq/store/scripts.py puts this text before the scripts
-- that need it.

-- A waiting trial that was claimed before has a hash, and ends as such; one never claimed is dropped.
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

-- True where a trial's lease was lost and nobody has claimed it since: its worker may come back.
local function is_lost(sid, n)
  local f = redis.call('HMGET', trial_key(sid, n), 'attempt', 'reaped')
  return f[1] and f[1] == f[2]
end

-- Answers how many they were. `awaits`: what was lost stays for the reaper to end (reap.lua).
local function cancel_all_waiting(sid, awaits)
  local waiting, dropped = sweep_key(sid, 'waiting'), sweep_key(sid, 'dropped')
  local again, stay = redis.call('ZRANGEBYSCORE', waiting, '-inf', 0), {}
  for _, n in ipairs(again) do
    if awaits and is_lost(sid, n) then
      redis.call('ZREM', waiting, n)
      stay[#stay + 1] = n
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
  for _, n in ipairs(stay) do redis.call('ZADD', waiting, n - FRONT, n) end
  return #again - #stay + rest
end

-- The worker of a running trial is gone. True where the trial, or its sweep, had been told to stop:
-- then it has ended by this. What was pruned keeps the value that it had reached.
local function end_if_stopped(sid, n, attempt)
  local t, flag = trial_key(sid, n), redis.call('HGET', sweep_key(sid), 'flag')
  local f = redis.call('HMGET', t, 'stop', 'objective', 'step', 'best')
  if f[1] == 'prune' then
    if (redis.call('HGET', sweep_key(sid), 'keep') or '') == '' then  -- as where its worker says so
      forget_files(sid, n, 'checkpoint', 'checkpoint_step')
    end
    finish(sid, n, attempt, 'pruned', 'objective', f[2] or '', 'step', f[3] or '0',
      'best', f[4] or '')
    if (f[2] or '') ~= '' then place(sid, n, f[2]) end
  elseif f[1] == 'stop' or flag == 'stopped' or flag == 'cancelled' then
    finish(sid, n, attempt, 'cancelled')
  else
    return false
  end
  let_files_go(sid, n, f[1] == 'prune')
  return true
end
