-- The budget of a sweep: which trials fit it, what its attempts spend, and when it holds the sweep. A sweep without
-- one has no `budget_ms`; for it only `expected_ms` is called.

-- What a trial is expected to take, ms: the mean and a standard deviation of those that ended, at most `timeout`;
-- before the third has ended `timeout`, or nothing.
local function expected_ms(s)
  local n, most = tonumber(s.dur_n) or 0, 1000 * (tonumber(s.timeout_s) or 0)
  if n < 3 then return most end
  local mean = s.dur_sum / n
  local expected = mean + math.sqrt(math.max(0, s.dur_sq / n - mean * mean))
  return most > 0 and math.min(most, expected) or expected
end

-- Returns how many further trials fit a sweep's budget on workers like the last that asked for one, and the
-- key that bounds them. N further ones fit if
--   spent + elapsed of the running ones + (running + N) * expected <= budget, in GPU time.
-- So a running one may take an expected trial longer than it has: those that take long are the ones that still run.
-- What the running ones have taken is their number times now, less `started_ms`, the sum of the times of their claims.
-- Before the third end, and without a timeout, nothing is expected. A budget of 0 ms only counts.
local function affordable(s)
  local expected, limit = expected_ms(s), tonumber(s.budget_ms)
  if is_set(s.until_ms) and NOW + expected > tonumber(s.until_ms) then return 0, 'budget.until' end
  if limit == 0 then return math.huge, '' end
  local gpus, elapsed = s.gpus or 1, math.max(0, s.RUNNING * NOW - (s.started_ms or 0))
  local left = limit - (s.spent_ms or 0) - elapsed * gpus
  return math.floor(left / math.max(1, expected * gpus)) - s.RUNNING, 'budget.gpu_hours'
end

-- Returns the key of the budget that allows no further trial; '' if there is none, or a trial runs, which may
-- take less than is expected.
local function exceeded(s)
  if s.RUNNING > 0 then return '' end
  local fits, bound = affordable(s)
  return fits < 1 and bound or ''
end

-- Holds a sweep whose budget is used up while trials wait, under the name of the key that allows no more; opens one
-- that was held so, if more fits now. Tells once that 80 % are spent.
local function check(s)
  local bound = s.WAITING + to_come(s) > 0 and exceeded(s) or ''
  if string.find(cause(s), '^budget%.') and cause(s) ~= bound then set_state(s, 'open') end
  if bound ~= '' and hold(s, 0, 0, bound, '') then set(s, 'trial_ms', int(expected_ms(s) * (s.gpus or 1))) end
  local limit, spent = tonumber(s.budget_ms), tonumber(s.spent_ms or 0)
  if limit > 0 and spent >= 0.8 * limit and s.near_ms ~= s.budget_ms then
    set(s, 'near_ms', s.budget_ms)
    sweep_event(s.SID, 'budget', 0, 0, 'spent_ms', s.spent_ms, 'budget_ms', s.budget_ms)
  end
end

-- Raises an error if a number that an attempt's begin or end changes is damaged: call it before the first write of a
-- move, or the trial is in no list.
local function assert_numbers(s)
  for _, field in ipairs({'started_ms', 'spent_ms', 'useful_ms'}) do int(tonumber(s[field] or 0) or math.huge) end
end

-- Counts an attempt that was claimed at a time among the running ones.
local function begin_attempt(s, claimed_ms) add(s, 'started_ms', claimed_ms) end

-- Sums up anew when the running attempts were claimed: the budget may be new, or the sum damaged. Save the sweep's
-- record then.
local function count_starts(s)
  local running, sum = redis.call('ZRANGE', sweep_key(s.SID, 'running'), 0, -1, 'WITHSCORES'), 0
  for i = 2, #running, 2 do sum = sum + running[i] end
  set(s, 'started_ms', int(sum))
end

-- Adds the GPU time of an attempt that ended to what is spent, or takes it back (`by` -1): not more than there is,
-- since the budget may be younger.
local function spend(s, t, by)
  local spent = (s.spent_ms or 0) + by * (also(t, 'gpus').gpus or 1) * (t.ran_ms or 0)
  set(s, 'spent_ms', int(math.max(0, spent)))
end

-- Counts an attempt that ended, and ran for `ran_ms`.
local function end_attempt(s, t)
  add(s, 'started_ms', -t.claimed_ms)
  spend(s, t, 1)
end

-- Takes back what an attempt has spent that ended and runs again.
local function take_back(s, t) spend(s, also(t, 'ran_ms'), -1) end

-- Counts the GPU time of an attempt that ended with a result.
local function count_useful(s, t) add(s, 'useful_ms', (t.gpus or 1) * (t.ran_ms or 0)) end

return {expected_ms = expected_ms, affordable = affordable, exceeded = exceeded, check = check,
  assert_numbers = assert_numbers, begin_attempt = begin_attempt, count_starts = count_starts, end_attempt = end_attempt,
  take_back = take_back, count_useful = count_useful}
