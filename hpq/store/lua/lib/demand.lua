-- What a sweep adds to its queue: the trials that may start, the tickets that wake workers for them, and its place
-- among the pending and the open sweeps.

-- How many trials of a sweep could be claimed now, including trials still to be added.
local function claimable(s)
  if s.state ~= 'open' then return 0 end
  local waiting, cap = s.WAITING + to_come(s), tonumber(s.max_parallel) or 0
  if cap > 0 then waiting = math.min(waiting, cap - s.RUNNING) end
  if is_set(s.budget_ms) then waiting = math.min(waiting, (budget().affordable(s))) end
  return math.max(0, waiting)
end

-- How many of these the limits of the sweep's owner let start, as the reaper last computed it. A claim applies
-- the limits themselves (lib/owners.lua).
local function startable(s)
  if not is_set(s.may_run) then return claimable(s) end
  return math.max(0, math.min(claimable(s), tonumber(s.may_run) - s.RUNNING))
end

-- How many workers a sweep has use for.
local function demand(s) return s.RUNNING + startable(s) end

-- True if trials may be suggested and no suggester holds the lease.
local function lacks_suggester(s)
  return to_come(s) > 0 and tonumber(s.suggest_until or 0) <= NOW and claimable(s) > 0
end

-- Returns how many tickets a sweep has use for: for waiting trials, or one for a worker that starts a
-- suggester.
local function useful_tickets(s)
  local ready = math.min(startable(s), s.WAITING)
  if ready == 0 then return lacks_suggester(s) and startable(s) > 0 and 1 or 0 end
  return math.min(ready, 8 + redis.call('ZCOUNT', key('q', s.queue, 'idle'), NOW - IDLE_MS, '+inf'))
end

-- Returns how many of `wanted` tickets a queue lacks. The key is RQ's.
local function lacking(queue, wanted)
  if wanted == 0 then return 0 end
  return math.max(0, wanted - redis.call('LLEN', table.concat({'rq:queue:hpq', P, queue}, ':')))
end

local function tickets(s) return lacking(s.queue, useful_tickets(s)) end

-- Adds to the number of running trials of the sweep's owner in its queue; the reaper corrects it.
local function count_busy(s, by)
  if s.queue and by ~= 0 then redis.pcall('HINCRBY', key('q', s.queue, 'busy'), s.owner or '', by) end
end

-- Makes the demand list of a queue, of `has` entries, as long as a demand, at most MOST_DEMAND.
local function fit_demand(queue, has, sum)
  local list, want = key('demand', queue), math.max(0, math.min(sum, MOST_DEMAND))
  if want < has then redis.call('LTRIM', list, has - want, -1) end
  while has < want do
    local batch = {}
    for i = 1, math.min(want - has, 1000) do batch[i] = '1' end
    has = redis.call('RPUSH', list, unpack(batch))
  end
end

-- Adds to the demand of a queue; the reaper corrects it. The list ends at MOST_DEMAND, since a million
-- entries take 0.3 s; the number is exact, so that a pause leaves what other sweeps need.
local function add_demand(queue, by)
  if by == 0 then return end
  local sum = redis.pcall('HINCRBY', key('queues'), 'demand:' .. queue, by)
  if type(sum) ~= 'number' then return end  -- another client damaged it
  fit_demand(queue, math.max(0, math.min(sum - by, MOST_DEMAND)), sum)
end

-- Adds an open sweep to the pending ones of its queue, or removes it, if that changed.
local function list(s)
  local is_in, pending = is_pending(s), key('q', s.queue, 'pending')
  if is_in == s.PENDING then return end
  local place = is_in and redis.call('ZSCORE', key('q', s.queue, 'open'), s.SID)
  if place then
    redis.call('ZADD', pending, place, s.SID)
  else
    redis.call('ZREM', pending, s.SID)
  end
  s.PENDING = is_in
end

-- Removes a sweep without claimable and running trials from the open sweeps of its queue.
local function close(s)
  redis.call('ZADD', key('histories'), NOW_MS, s.SID)
  redis.call('ZREM', key('q', s.queue, 'open'), s.SID)
  redis.call('HDEL', key('q', s.queue, 'owners'), s.SID)
end

-- Saves a sweep that was changed, and updates its queue: the demand, to which the sweep added `before` before the
-- change, and the pending and the open sweeps. A budget that is used up holds the sweep first.
local function update_queue(s, before)
  if is_set(s.budget_ms) then budget().check(s) end
  save(s)
  add_demand(s.queue, demand(s) - before)
  list(s)
  if is_done(s) then close(s) end
end
