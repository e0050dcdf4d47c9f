-- The guards: decide whether a sweep's code or one of its workers makes its trials fail.
-- hpq/store/scripts.py prepends this text to the scripts that need it.

-- A sweep's tail is its last ten ended attempts, each with its worker and its mark: '+' for a trial that
-- passed, '-' for one that shows nothing, else the fingerprint of its failure.
-- `evidence` is what the kind of failure shows (hpq/domain/retry_policy.py).
local function mark_of(outcome, kind, fingerprint, evidence)
  if outcome == 'finished' or outcome == 'pruned' then return '+' end
  if outcome ~= 'failed' or evidence == 'none' then return '-' end
  if evidence ~= 'code' then fingerprint = kind .. ' ' .. fingerprint end
  return (string.gsub(fingerprint, '[\n\t]', ' '))
end

-- Appends an end to the tail and returns the tail, each {worker, mark}.
local function tail(sid, worker, mark)
  local all = (redis.call('HGET', sweep_key(sid), 'tail') or '') .. worker .. '\t' .. mark .. '\n'
  local last, from = {}, 1
  for name, result in string.gmatch(all, '([^\n\t]*)\t([^\n]*)\n') do last[#last + 1] = {name, result} end
  if #last > 10 then
    table.remove(last, 1)
    from = string.find(all, '\n', 1, true) + 1
  end
  redis.call('HSET', sweep_key(sid), 'tail', string.sub(all, from))
  return last
end

-- How often in a row a worker has failed with this mark in a sweep.
local function streak(sid, worker, mark)
  local w, this = key('w', worker), sid .. '\t' .. mark
  if redis.call('EXISTS', w) == 0 then return 1 end
  if mark == '+' or mark == '-' then return redis.call('HDEL', w, 'streak', 'streak_n', 'suspect_ms') end
  if redis.call('HGET', w, 'streak') ~= this then
    redis.call('HSET', w, 'streak', this, 'streak_n', 0)
    redis.call('HDEL', w, 'suspect_ms')
  end
  return redis.call('HINCRBY', w, 'streak_n', 1)
end

-- True if another worker may claim from the sweep and so show who is at fault. A suspected worker does
-- not wait long for a peer that stays busy with other sweeps.
local function has_peer(sid, worker)
  local since = tonumber(redis.call('HGET', key('w', worker), 'suspect_ms') or NOW)
  local is_late = NOW - since > 2 * FRESH_MS
  for _, other in ipairs(candidates(sid)) do
    if other.name ~= worker and (other.idle or other.sweep == sid or not is_late) then return true end
  end
  return false
end

-- Counts in the tail: failures like this one, those on other workers, and trials that passed there.
local function compare(last, worker, mark)
  local same, others, passed = 0, 0, 0
  for _, ended in ipairs(last) do
    local elsewhere = ended[1] ~= worker
    if ended[2] == mark then
      same, others = same + 1, others + (elsewhere and 1 or 0)
    elseif ended[2] == '+' and elsewhere then
      passed = passed + 1
    end
  end
  return same, others, passed
end

-- True if only this worker fails like this, while others pass or no other has tried.
local function is_alone(others, passed, in_a_row)
  return others == 0 and ((in_a_row >= 3 and passed >= 2) or in_a_row >= 5)
end

-- Holds a sweep whose last five ends were all distrusted: another client changes its trials.
local function hold_if_tampered(sid, n, attempt, last)
  local mark, from = last[#last][2], #last - 4
  for i = from, #last do
    if not last[i] or last[i][2] ~= mark then return end
  end
  hold(sid, n, attempt, 'the parameters of 5 trials in a row were changed in Redis')
end

-- The breaker: holds a sweep if its first five trials, or eight of the last ten, fail alike on two
-- workers or on the only worker.
local function breaker(sid, n, attempt, worker, last)
  local mark = last[#last][2]
  local same, others = compare(last, worker, mark)
  if not ((same == #last and same >= 5) or same >= 8) then return end
  if others > 0 and others < same or not has_peer(sid, worker) then
    hold(sid, n, attempt, same .. ' of ' .. #last .. ' trials failed: ' .. mark)
  end
end
