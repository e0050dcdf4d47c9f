-- Transitions of a trial: out of running, back to the queue, into a terminal state and the ranking. They
-- change the records of the sweep and the trial, which the caller saves, unless it is said otherwise.

-- Makes a waiting trial a running one, whose attempt was claimed at a time.
local function enter_running(s, t, claimed_ms)
  if is_set(s.budget_ms) then budget().assert_numbers(s) end
  s.WAITING = s.WAITING - redis.call('ZREM', sweep_key(s.SID, 'waiting'), t.N)
  s.RUNNING = s.RUNNING + redis.call('ZADD', sweep_key(s.SID, 'running'), claimed_ms, t.N)
  if is_set(s.budget_ms) then budget().begin_attempt(s, claimed_ms) end
  count_busy(s, 1)
end

-- Makes a trial a running one whose lease was reaped, and whose worker came back.
local function enter_again(s, t)
  enter_running(s, t, t.claimed_ms)
  if is_set(s.budget_ms) then budget().take_back(s, t) end
  if owners().exist() then set(t, 'charged_ms', also(t, 'beat_ms').beat_ms) end  -- the last time that was charged
end

-- Ends the lease of the running attempt; `seen_ms` is when it was last known to run (t.UNTIL of a commit: as its
-- worker measured it).
local function leave_running(s, t, seen_ms)
  if is_set(s.budget_ms) and t.state == 'running' then budget().assert_numbers(s) end
  redis.call('ZREM', key('leases'), s.SID .. '/' .. t.N)
  if redis.call('ZREM', sweep_key(s.SID, 'running'), t.N) == 0 then return end
  s.RUNNING = s.RUNNING - 1
  count_busy(s, -1)
  set(t, 'ran_ms', int(math.max(0, seen_ms - tonumber(t.claimed_ms))))  -- a new primary's clock may be behind
  if is_set(s.budget_ms) then budget().end_attempt(s, t) end
  if t.charged_ms then
    owners().charge(s, t, seen_ms)
    unset(t, 'charged_ms')
  end
end

-- Adds the time of an attempt to before_ms, the time of all attempts before the next one.
local function add_attempt_time(t)
  also(t, 'ran_ms', 'before_ms')
  if not t.ran_ms then return end
  add(t, 'before_ms', t.ran_ms)
  unset(t, 'ran_ms')
end

-- Requeues a trial at the front. The attempt is closed, unless its lease was reaped: then its worker
-- may come back. `...` are further fields of the event.
local function requeue(s, t, reason, reaped, ...)
  leave_running(s, t, reaped and tonumber(t.beat_ms) or t.UNTIL or NOW)
  s.WAITING = s.WAITING + redis.call('ZADD', sweep_key(s.SID, 'waiting'), t.N - FRONT, t.N)
  unset(t, reaped and 'closed' or 'reaped')
  set(t, 'state', 'queued')
  set(t, reaped and 'reaped' or 'closed', t.attempt)
  event(t, 'requeued', 'reason', reason, ...)
end

local MOST_REPLICATES = 1000  -- as in hpq/domain/sweep.py

-- Adds a trial to the ranking, or removes it (objective nil). Replicates have consecutive numbers;
-- `means` has the number of the first with the mean of all. Needs `replicates`.
local function rank(s, n, objective)
  local ranking, each = sweep_key(s.SID, 'rank'), math.min(tonumber(s.replicates or 1), MOST_REPLICATES)
  if objective then redis.call('ZADD', ranking, objective, n) else redis.call('ZREM', ranking, n) end
  if each < 2 then return end
  local first, sum, count = n - (n - 1) % each, 0, 0
  for i = first, first + each - 1 do
    local score = redis.call('ZSCORE', ranking, i)
    if score then sum, count = sum + score, count + 1 end
  end
  local means = sweep_key(s.SID, 'means')
  if count == 0 then redis.call('ZREM', means, first) return end
  redis.call('ZADD', means, string.format('%.17g', sum / count), first)
end

-- Ends a trial and saves its record. `fields` is a list of further fields and values of its hash; those up
-- to `told` (all, if it is nil) are also in the event. `last`: its points, if it has no streams.
local function finish(s, t, state, fields, told, last)
  leave_running(s, t, t.UNTIL or NOW)
  if t.state ~= 'running' then s.WAITING = s.WAITING - redis.call('ZREM', sweep_key(s.SID, 'waiting'), t.N) end
  if is_set(s.budget_ms) and (state == 'finished' or state == 'pruned') then
    budget().count_useful(s, t)
  end
  if t.reaped then unset(t, 'reaped') end
  redis.call('ZADD', sweep_key(s.SID, 'ended'), NOW_MS, t.N)
  redis.call('HINCRBY', s.KEY, 'n_' .. state, 1)
  if t.checkpoint or t.artifacts or t.unstored then redis.call('SADD', sweep_key(s.SID, 'files'), t.N) end
  points().pack(t, last, last and {})
  event(t, state, unpack(fields, 1, told or #fields))
  save(t, 'state', state, 'closed', t.attempt, 'ended_ms', NOW_MS, unpack(fields))
  t.state = state
end

-- Returns what ends a sweep's trials early: its metric with a rule (lib/early_termination.lua), a target, or both; nil
-- if it has neither. Needs `metric`, `early` and `constraints`.
local function read_rule(s)
  if not is_set(s.metric) then return nil end
  if not is_set(s.early) and string.find(s.metric, '"target":null', 1, true) then return nil end
  local metric, rule = cjson.decode(s.metric), cjson.decode(is_set(s.early) and s.early or '{}')
  rule.metric, rule.max, rule.target = metric.name, metric.goal == 'maximize', tonumber(metric.target)
  rule.bound = is_set(s.constraints)
  return rule
end
