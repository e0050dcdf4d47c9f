-- Early termination and the sweep's target. hpq/store/scripts.py prepends this text to the scripts
-- that need it.
--
-- A rule compares trials at its bands: band 9 is the ninth finite value of the metric, whatever its
-- step, and P:s:S:band:9 holds the ninth values of all trials. A trial's hash has `logged`, the number
-- of its values, because its points are thinned, and `best`. A value at the step of the previous value
-- replaces it, as in a row of W&B's history: `logged_at` is that step, `best_before` the best before it.

-- Returns the sweep's metric and rule; nil if it has no metric.
local function read_rule(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'metric', 'early')
  if (f[1] or '') == '' then return nil end
  local metric = cjson.decode(f[1])
  local rule = (f[2] or '') ~= '' and cjson.decode(f[2]) or {}
  rule.metric, rule.max, rule.target = metric.name, metric.goal == 'maximize', tonumber(metric.target)
  return rule
end

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
local function judge(sid, n, attempt, rule, counted, is_new)
  local test, at = RULES[rule.rule], nil
  for _, band in ipairs(rule.bands or {}) do
    if band > counted[1] then break end
    at = band
  end
  if not test or not at or (counted[2] or '') == '' then return end
  if rule.rule ~= 'hyperband' and not (is_new and at == counted[1]) then return end
  local band = sweep_key(sid, 'band:' .. int(at))
  local all = redis.call('ZCARD', band)
  if all == 0 then return end
  local value, limit = test(rule, band, n, all, counted[2])
  if not value or not limit or not worse(rule, tonumber(value), tonumber(limit)) then return end
  local better = rule.max and {'(' .. value, '+inf'} or {'-inf', '(' .. value}
  local rank = redis.call('ZCOUNT', band, unpack(better)) + 1
  local why = string.format('{"rule":"%s","band":%d,"rank":%d,"n":%d,"threshold":%s,"value":%s}',
    rule.rule, at, rank, all, limit, value)
  redis.call('HSET', trial_key(sid, n), 'stop', 'prune', 'pruning', why)
  event(sid, 'prune', n, attempt, 'why', why)
  return true
end

-- Judges a trial without a new value: other trials may have moved the threshold.
local function judge_again(sid, n, attempt, rule)
  if not rule.bands then return end
  local f = redis.call('HMGET', trial_key(sid, n), 'logged', 'best', 'stop')
  if not f[3] then judge(sid, n, attempt, rule, {tonumber(f[1] or 0), f[2]}, false) end
end

-- Stops the sweep once a value reaches the target: no trial starts, running trials may end.
local function stop_at_target(sid, n, attempt, rule, text)
  local value, flag = tonumber(text), redis.call('HGET', sweep_key(sid), 'flag')
  if not rule.target or not value or value ~= value or worse(rule, value, rule.target) then return end
  if flag == 'stopped' or flag == 'cancelled' then return end
  local touched = 0
  changing(sid, function()
    local why = string.format('{"trial":%d,"value":%.17g,"target":%.17g}', n, value, rule.target)
    redis.call('HSET', sweep_key(sid), 'flag', 'stopped', 'reached', why)
    close_search(sid, 'target')
    touched = cancel_all_waiting(sid, true)
  end)
  event(sid, 'target', n, attempt, 'value', text, 'touched', touched)
end

-- Records the next value of the metric.
local function log_value(sid, n, attempt, rule, step, text)
  local value, t = tonumber(text), trial_key(sid, n)
  if not value or value ~= value or math.abs(value) == math.huge then return end
  stop_at_target(sid, n, attempt, rule, text)
  if not rule.bands then return end
  local f = redis.call('HMGET', t, 'logged', 'best', 'stop', 'logged_at', 'best_before')
  local replaces = f[4] == step
  local before = (replaces and f[5] or f[2]) or ''
  local counted = {tonumber(f[1] or 0) + (replaces and 0 or 1), before}
  if before == '' or worse(rule, tonumber(before), value) then counted[2] = text end
  redis.call('HSET', t, 'logged', int(counted[1]), 'best', counted[2], 'logged_at', step,
    'best_before', before)
  for _, at in ipairs(rule.bands) do
    if at == counted[1] then
      local band = sweep_key(sid, 'band:' .. int(at))
      redis.call('ZADD', band, text, n)
      if redis.call('ZCARD', band) == 1 then
        local bands = redis.call('HGET', sweep_key(sid), 'bands') or ' '
        if not string.find(bands, ' ' .. int(at) .. ' ', 1, true) then
          redis.call('HSET', sweep_key(sid), 'bands', bands .. int(at) .. ' ')
        end
      end
    end
  end
  if not f[3] then judge(sid, n, attempt, rule, counted, true) end
end
