-- The circuit breaker: decides whether a sweep's code or one of its workers makes its trials fail.

-- A sweep's tail is the window of its last ten ended attempts, each with its worker and its mark: '+' for a
-- trial that passed, '-' for one that shows nothing, else the fingerprint of its failure. Retried trials do not
-- enter it: that they failed is known.
-- `evidence` is what the kind of failure shows (hpq/domain/retry_policy.py).
local function mark_of(kind, fingerprint, evidence)
  if evidence == 'none' then return '-' end
  if evidence ~= 'code' then fingerprint = kind .. ' ' .. fingerprint end
  return (string.gsub(fingerprint, '[\n\t]', ' '))
end

-- Returns a tail with one more end.
local function with_end(tail, worker, mark)
  local longer = tail .. worker .. '\t' .. mark .. '\n'
  local _, length = string.gsub(longer, '\n', '')
  if length <= 10 then return longer end
  return string.sub(longer, string.find(longer, '\n', 1, true) + 1)
end

-- Returns the ends in a tail, each {worker, mark}.
local function ends_in(tail)
  local last = {}
  for name, mark in string.gmatch(tail, '([^\n\t]*)\t([^\n]*)\n') do last[#last + 1] = {name, mark} end
  return last
end

-- How often in a row a worker has failed with this mark in a sweep.
local function streak(s, worker, mark)
  local name, this = key('w', worker), s.SID .. '\t' .. mark
  if redis.call('EXISTS', name) == 0 then return 1 end
  local w = also({KEY = name}, 'streak', 'streak_n')
  if w.streak ~= this then
    set(w, 'streak', this)
    set(w, 'streak_n', 0)
    unset(w, 'suspect_ms')
  end
  add(w, 'streak_n', 1)
  save(w)
  return tonumber(w.streak_n)
end

-- True if another worker may claim from the sweep and so show who is at fault. A suspected worker does
-- not wait long for a peer that stays busy with other sweeps.
local function has_peer(s, worker)
  local since = tonumber(redis.call('HGET', key('w', worker), 'suspect_ms') or NOW)
  local is_late = NOW - since > 2 * FRESH_MS
  for other in workers().candidates(s) do
    if other.name ~= worker and (other.idle or other.sweep == s.SID or not is_late) then return true end
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

-- Holds a sweep at its third trial without the sweep's metric if no trial has reported that metric.
local function hold_if_unreported(s, t, why)
  if s.state ~= 'open' or redis.call('HINCRBY', s.KEY, 'n_unreported', 1) ~= 3 then return end
  local diverged = tonumber(redis.call('HGET', s.KEY, 'n_diverged') or 0)
  if diverged + redis.call('ZCARD', sweep_key(s.SID, 'rank')) > 0 then return end
  for _, m in ipairs(redis.call('ZRANGE', sweep_key(s.SID, 'running'), 0, -1)) do
    if is_set(redis.call('HGET', trial_key(s.SID, m), 'objective')) then return end
  end
  hold(s, t.N, t.attempt, 'unreported', 'the first 3 trials lack the metric: ' .. why)
end

-- Holds a sweep if the first five trials of the window, or eight of the last ten, fail alike on two
-- workers or on the only worker.
local function hold_if_alike(s, t, worker, mark, last)
  local same, others = compare(last, worker, mark)
  if not ((same == #last and same >= 5) or same >= 8) then return end
  if others > 0 and others < same or not has_peer(s, worker) then
    hold(s, t.N, t.attempt, 'alike', same .. ' of ' .. #last .. ' trials failed: ' .. mark)
  end
end

return {mark_of = mark_of, with_end = with_end, ends_in = ends_in, streak = streak, compare = compare,
  is_alone = is_alone, has_peer = has_peer, hold_if_unreported = hold_if_unreported, hold_if_alike = hold_if_alike}
