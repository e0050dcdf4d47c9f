-- The guards: decide whether a sweep's code or one of its workers makes its trials fail.
-- hpq/store/scripts.py prepends this text to the scripts that need it.

-- A sweep's tail is the window of its last ten ended attempts, each with its worker and its mark: '+' for a
-- trial that passed, '-' for one that shows nothing, else the fingerprint of its failure. Retried trials have a
-- window of their own, tail_again: they may end their retry, but never hold the sweep.
-- `evidence` is what the kind of failure shows (hpq/domain/retry_policy.py).
local function mark_of(outcome, kind, fingerprint, evidence)
  if outcome == 'finished' or outcome == 'pruned' then return '+' end
  if outcome ~= 'failed' or evidence == 'none' then return '-' end
  if evidence ~= 'code' then fingerprint = kind .. ' ' .. fingerprint end
  return (string.gsub(fingerprint, '[\n\t]', ' '))
end

-- Appends an end to its window and returns the window, each {worker, mark}.
local function tail(sid, worker, mark, is_retried)
  local field = is_retried and 'tail_again' or 'tail'
  local all = (redis.call('HGET', sweep_key(sid), field) or '') .. worker .. '\t' .. mark .. '\n'
  local last, from = {}, 1
  for name, result in string.gmatch(all, '([^\n\t]*)\t([^\n]*)\n') do last[#last + 1] = {name, result} end
  if #last > 10 then
    table.remove(last, 1)
    from = string.find(all, '\n', 1, true) + 1
  end
  redis.call('HSET', sweep_key(sid), field, string.sub(all, from))
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

-- Returns the retried trials that wait to `failed`, at most MOST_ENDED; the next that fails returns more.
local function end_retry(sid, n, _, why)
  local kind = redis.call('HGET', trial_key(sid, n), 'kind')
  local rest = redis.call('ZRANGEBYSCORE', sweep_key(sid, 'waiting'), '-inf', int(-FRONT), 'LIMIT', 0, MOST_ENDED)
  for _, m in ipairs(rest) do
    local f = redis.call('HMGET', trial_key(sid, m), 'attempt', 'again', 'again_error', 'again_fingerprint')
    if f[2] == '' then f[2], f[3] = kind, why end  -- it had not failed
    finish(sid, m, f[1], 'failed', 'kind', f[2], 'error', f[3], 'fingerprint', f[4], 'not_run', 1)
    if f[2] == 'diverged' then redis.call('HINCRBY', sweep_key(sid), 'n_diverged', 1) end
  end
  if #rest == 0 then return end
  redis.call('HSET', sweep_key(sid), 'retry_ended', why)
  event(sid, 'retry_ended', 0, 0, 'why', why, 'count', #rest)
end

-- Holds a sweep at its third trial without the sweep's metric if no trial has reported that metric.
local function hold_if_unreported(sid, n, attempt, why)
  if redis.call('HINCRBY', sweep_key(sid), 'n_unreported', 1) ~= 3 then return end
  local diverged = redis.call('HGET', sweep_key(sid), 'n_diverged')
  if tonumber(diverged or 0) + redis.call('ZCARD', sweep_key(sid, 'rank')) > 0 then return end
  for _, m in ipairs(redis.call('ZRANGE', sweep_key(sid, 'running'), 0, -1)) do
    if (redis.call('HGET', trial_key(sid, m), 'objective') or '') ~= '' then return end
  end
  hold(sid, n, attempt, 'the first 3 trials lack the metric: ' .. why)
end

-- Halts the sweep, or the retry, whose last five ends were all distrusted: another client changes trials.
local function halt_if_tampered(sid, n, attempt, last, halt)
  local mark, from = last[#last][2], #last - 4
  for i = from, #last do
    if not last[i] or last[i][2] ~= mark then return end
  end
  halt(sid, n, attempt, 'the parameters of 5 trials in a row were changed in Redis')
end

-- The breaker: halts the sweep, or the retry, if the first five trials of the window, or eight of the last ten,
-- fail alike on two workers or on the only worker.
local function breaker(sid, n, attempt, worker, last, halt)
  local mark = last[#last][2]
  local same, others = compare(last, worker, mark)
  if not ((same == #last and same >= 5) or same >= 8) then return end
  if others > 0 and others < same or not has_peer(sid, worker) then
    halt(sid, n, attempt, same .. ' of ' .. #last .. (halt == hold and '' or ' retried') .. ' trials failed: ' .. mark)
  end
end
