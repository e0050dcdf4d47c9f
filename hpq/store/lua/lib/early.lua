-- Early termination and the sweep's target: what the values of its metric lead to. hpq/store/scripts.py puts
-- this text before the scripts that need it.
--
-- A rule looks at some of the values only, its bands: band 9 is the ninth finite value of the metric,
-- whatever its step, and P:s:S:band:9 holds the ninth values of all trials. A trial has `logged`, how
-- many it gave, and `best`; its points are thinned, so they cannot be counted. A value at the step of
-- the one before it takes its place, as in a row of W&B's history: `logged_at` is that step,
-- `best_before` the best without it.

-- What the sweep's metric and rule are; nil where it has no metric.
local function read_rule(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'metric', 'early')
  if (f[1] or '') == '' then return nil end
  local metric = cjson.decode(f[1])
  local rule = (f[2] or '') ~= '' and cjson.decode(f[2]) or {}
  rule.metric, rule.max, rule.target = metric.name, metric.goal == 'maximize', tonumber(metric.target)
  return rule
end

local function worse(rule, a, b) if rule.max then return a < b else return a > b end end

-- The value at a place of a band, the best first, from 0.
local function at_place(rule, band, place)
  return redis.call(rule.max and 'ZREVRANGE' or 'ZRANGE', band, place, place, 'WITHSCORES')[2]
end

-- The rules: each answers the trial's value and the one that it must not be worse than, where there
-- is something to compare. `all` is how many trials have reached the band, this one too.
local RULES = {}

-- W&B's: its value at the band (strict), else its best so far, against place n/eta of all.
function RULES.hyperband(rule, band, n, all, best)
  local value = rule.strict and redis.call('ZSCORE', band, n) or best
  return value, at_place(rule, band, math.floor(1 / rule.eta * all))
end

-- Optuna's successive halving: it is among the best n/eta of those that came so far, or the best.
function RULES.asha(rule, band, n, all)
  local place = math.max(0, math.floor(all / rule.eta) - 1)
  return redis.call('ZSCORE', band, n), at_place(rule, band, place)
end

-- Optuna's median: its best so far is not worse than the median of the others at the band.
function RULES.median(rule, band, n, all, best)
  local others = all - 1
  local own = redis.call(rule.max and 'ZREVRANK' or 'ZRANK', band, n)
  if others < math.max(1, rule.min_trials) or not own then return nil end
  local function other(i) return tonumber(at_place(rule, band, i < own and i or i + 1)) end
  local low, high = other(math.floor((others - 1) / 2)), other(math.floor(others / 2))
  return best, string.format('%.17g', low + (high - low) / 2)
end

-- Tells the trial to stop where the rule says so, and why. `counted` is {logged, best}, `is_new`
-- says that the newest value was just given: hyperband, as W&B's, looks also later.
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

-- Others may have moved the threshold since.
local function judge_again(sid, n, attempt, rule)
  if not rule.bands then return end
  local f = redis.call('HMGET', trial_key(sid, n), 'logged', 'best', 'stop')
  if not f[3] then judge(sid, n, attempt, rule, {tonumber(f[1] or 0), f[2]}, false) end
end

-- Once a value is as good as the target nothing of the sweep starts any more; what runs may end.
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

-- Takes the next value of the metric.
local function log_value(sid, n, attempt, rule, step, text)
  local value, t = tonumber(text), trial_key(sid, n)
  if not value or value ~= value or math.abs(value) == math.huge then return end
  stop_at_target(sid, n, attempt, rule, text)
  if not rule.bands then return end
  local f = redis.call('HMGET', t, 'logged', 'best', 'stop', 'logged_at', 'best_before')
  local is_again = f[4] == step
  local before = (is_again and f[5] or f[2]) or ''
  local counted = {tonumber(f[1] or 0) + (is_again and 0 or 1), before}
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
