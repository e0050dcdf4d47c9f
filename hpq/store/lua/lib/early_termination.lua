-- Early termination and the sweep's target.
--
-- A rule compares trials at its bands: band 9 is the ninth finite value of the metric, whatever its
-- step, and P:s:S:band:9 holds the ninth values of all trials. A trial's hash has `logged`, the number
-- of its values, because its points are thinned, and `best`. A value at the step of the previous value
-- replaces it, as in a row of W&B's history: `logged_at` is that step, `best_before` the best before it.

local function worse(rule, a, b) if rule.max then return a < b else return a > b end end

-- Returns the value at a rank of a band; rank 0 is the best.
local function at_rank(rule, band, rank)
  return redis.call(rule.max and 'ZREVRANGE' or 'ZRANGE', band, rank, rank, 'WITHSCORES')[2]
end

-- Each rule returns the trial's value and its threshold, or nil if there is nothing to compare.
-- `all` counts the trials that reached the band, including this one.
local RULES = {}

-- W&B's: the trial's value at the band (strict) or its best so far, against rank all/eta.
function RULES.hyperband(rule, band, n, all, best)
  local value = rule.strict and redis.call('ZSCORE', band, n) or best
  return value, at_rank(rule, band, math.floor(1 / rule.eta * all))
end

-- Optuna's successive halving: the trial must be among the best all/eta so far, or the best.
function RULES.asha(rule, band, n, all)
  local rank = math.max(0, math.floor(all / rule.eta) - 1)
  return redis.call('ZSCORE', band, n), at_rank(rule, band, rank)
end

-- Optuna's median: the trial's best must not be worse than the median of the others at the band.
function RULES.median(rule, band, n, all, best)
  local others = all - 1
  local own = redis.call(rule.max and 'ZREVRANK' or 'ZRANK', band, n)
  if others < math.max(1, rule.min_trials) or not own then return nil end
  local function other(i) return tonumber(at_rank(rule, band, i < own and i or i + 1)) end
  local low, high = other(math.floor((others - 1) / 2)), other(math.floor(others / 2))
  return best, string.format('%.17g', low + (high - low) / 2)
end

-- Stops the trial if the rule prunes it, and records why. `counted` is {logged, best}; `is_new`: the
-- newest value was just reported. hyperband, as in W&B, also judges later.
local function judge(t, rule, counted, is_new)
  local test, at, n = RULES[rule.rule], nil, t.N
  for _, band in ipairs(rule.bands or {}) do
    if band > counted[1] then break end
    at = band
  end
  if not test or not at or not is_set(counted[2]) then return end
  if rule.rule ~= 'hyperband' and not (is_new and at == counted[1]) then return end
  local band = sweep_key(t.SID, 'band:' .. int(at))
  local all = redis.call('ZCARD', band)
  if all == 0 then return end
  local value, limit = test(rule, band, n, all, counted[2])
  if not value or not limit or not worse(rule, tonumber(value), tonumber(limit)) then return end
  local better = rule.max and {'(' .. value, '+inf'} or {'-inf', '(' .. value}
  local rank = redis.call('ZCOUNT', band, unpack(better)) + 1
  local why = string.format('{"rule":"%s","band":%d,"rank":%d,"n":%d,"threshold":%s,"value":%s}',
    rule.rule, at, rank, all, limit, value)
  set(t, 'stop', 'prune')
  set(t, 'pruning', why)
  event(t, 'prune', 'why', why)
end

-- Reads once what a trial has logged.
local function read_logged(t)
  if t.LOGGED then return end
  t.LOGGED = true
  also(t, 'logged', 'best', 'logged_at', 'best_before')
end

-- Judges a trial without a new value: other trials may have moved the threshold.
local function judge_again(t, rule)
  read_logged(t)
  if rule.bands and not t.stop then judge(t, rule, {tonumber(t.logged or 0), t.best}, false) end
end

-- Stops the sweep once a value reaches the target: no trial starts, running trials may end.
local function stop_at_target(s, t, rule, text)
  local value = tonumber(text)
  if not rule.target or not value or value ~= value or worse(rule, value, rule.target) then return end
  if is_closed(s) then return end
  if redis.call('HEXISTS', s.KEY, 'past_target') == 1 then return end  -- trials were added or retried since
  local touched = 0
  sweeps().changing(s, function()
    set_state(s, 'stopped', 'target',
      string.format('{"trial":%d,"value":%.17g,"target":%.17g}', t.N, value, rule.target))
    set(s, 'past_target', '1')
    sweeps().close_search(s, 'target')
    touched = ends().cancel_all_waiting(s, true)
  end)
  event(t, 'target', 'value', text, 'touched', touched)
end

-- Records the next value of the metric.
local function log_value(s, t, rule, step, text)
  local value = tonumber(text)
  if not value or value ~= value or math.abs(value) == math.huge then return end
  if not rule.bound then stop_at_target(s, t, rule, text) end  -- else its end tells whether it counts
  if not rule.bands then return end
  read_logged(t)
  local replaces = t.logged_at == step
  local before = (replaces and t.best_before or t.best) or ''
  local logged, best = tonumber(t.logged or 0) + (replaces and 0 or 1), before
  if before == '' or worse(rule, tonumber(before), value) then best = text end
  set(t, 'logged', int(logged))
  set(t, 'best', best)
  set(t, 'logged_at', step)
  set(t, 'best_before', before)
  for _, at in ipairs(rule.bands) do
    if at == logged then
      local band = sweep_key(s.SID, 'band:' .. int(at))
      redis.call('ZADD', band, text, t.N)
      if redis.call('ZCARD', band) == 1 then
        local bands = also(s, 'bands').bands or ' '
        if not string.find(bands, ' ' .. int(at) .. ' ', 1, true) then set(s, 'bands', bands .. int(at) .. ' ') end
      end
    end
  end
  if not t.stop then judge(t, rule, {logged, best}, true) end
end

return {judge_again = judge_again, stop_at_target = stop_at_target, log_value = log_value}
