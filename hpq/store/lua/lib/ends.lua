-- Ends trials without their workers.

-- Cancels a waiting trial. A trial that was never claimed has no hash, so it is dropped.
local function cancel_waiting(s, n)
  local t = read_trial(s.SID, n, 'beat_ms')
  if t.attempt then
    finish(s, t, 'cancelled', {})
  else
    s.WAITING = s.WAITING - redis.call('ZREM', sweep_key(s.SID, 'waiting'), n)
    redis.call('ZADD', sweep_key(s.SID, 'dropped'), n, n)
    sweep_event(s.SID, 'cancelled', n, 0)
  end
end

-- True if a trial's lease was lost and no worker has claimed it since: its worker may come back.
local function is_lost(sid, n)
  local f = redis.call('HMGET', trial_key(sid, n), 'attempt', 'reaped')
  return f[1] and f[1] == f[2]
end

local MOST_MOVED = 5000  -- trials that one call moves: about 15 ms

-- Moves members with their scores from one sorted set to another.
local function move(from, to, members)
  for i = 1, #members, 1000 do
    local names, pairs_ = {}, {}
    for j = i, math.min(i + 999, #members), 2 do
      names[#names + 1] = members[j]
      pairs_[#pairs_ + 1], pairs_[#pairs_ + 2] = members[j + 1], members[j]
    end
    redis.call('ZADD', to, unpack(pairs_))
    redis.call('ZREM', from, unpack(names))
  end
end

-- Cancels waiting trials, a part of them if they are many, and returns how many, and if some are left:
-- call it again. `awaits`: lost trials stay until the reaper ends them (reap.lua).
local function cancel_all_waiting(s, awaits)
  local sid, ended, lost = s.SID, 0, {}
  local waiting, dropped = sweep_key(sid, 'waiting'), sweep_key(sid, 'dropped')
  while ended < MOST_ENDED do
    local some = redis.call('ZRANGEBYSCORE', waiting, '-inf', 0, 'LIMIT', #lost / 2, MOST_ENDED - ended)
    if #some == 0 then break end
    for _, n in ipairs(some) do
      if awaits and is_lost(sid, n) then
        lost[#lost + 1], lost[#lost + 2] = n, n - FRONT
      else
        cancel_waiting(s, n)
        ended = ended + 1
      end
    end
  end
  if ended == MOST_ENDED then return ended, true end
  local rest = redis.call('ZCARD', waiting) - #lost / 2
  if rest == 0 then return ended, false end
  if redis.call('ZCARD', dropped) > MOST_MOVED then
    move(waiting, dropped, redis.call('ZRANGEBYSCORE', waiting, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, MOST_MOVED))
    return ended + math.min(rest, MOST_MOVED), rest > MOST_MOVED
  end
  -- The few go into the many: a million trials that wait take no time, and all end at once.
  move(dropped, waiting, redis.call('ZRANGE', dropped, 0, -1, 'WITHSCORES'))
  redis.call('RENAME', waiting, dropped)
  move(dropped, waiting, lost)
  return ended + rest, false
end

-- Ends a running trial whose worker is gone if the trial or its sweep was stopped; true if so. A
-- pruned trial keeps its last value. Saves the trial's record.
local function end_if_stopped(s, t)
  also(s, 'keep', 'replicates', 'constraints')
  also(t, 'objective', 'step', 'best')
  if t.stop == 'prune' then
    local objective, best = t.objective or '', t.best or ''
    local fields, told = {'objective', objective, 'step', t.step or '0', 'best', best}, 6
    if is_set(s.constraints) then  -- only the worker has checked them
      fields[7], fields[8], told = 'infeasible', '1', 8
    elseif objective ~= '' then
      rank(s, t.N, objective)
    end
    fields[told + 1], fields[told + 2] = 'best_value', best
    finish(s, t, 'pruned', fields, told)
  elseif t.stop == 'stop' or is_closed(s) then
    finish(s, t, 'cancelled', {})
  else
    return false
  end
  files().release(s, t, t.stop == 'prune')
  return true
end

-- Ends a running trial that no worker should claim again, and says why. Saves the trial's record.
local function end_as_poison(s, t, why)
  finish(s, t, 'failed', {'kind', 'poison', 'error', why})
  also(s, 'keep')
  files().release(s, t, false)
end

return {MOST_MOVED = MOST_MOVED, move = move, cancel_waiting = cancel_waiting,
  cancel_all_waiting = cancel_all_waiting, end_if_stopped = end_if_stopped, end_as_poison = end_as_poison}
