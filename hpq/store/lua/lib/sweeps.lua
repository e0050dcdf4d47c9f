-- A sweep as a whole: opened, closed, changed in many trials at once.

local PRIORITY = 1e13  -- ms, more than any time since 1970
local OPEN = 1e14      -- ms, added to the place of an open sweep in P:histories

local function is_at_rest(s) return s.state == 'held' or is_done(s) end

-- Saves a sweep that was changed, and reads it again. No field of a sweep is ever removed.
local function reread(s)
  local is_listed = s.PENDING
  save(s)
  for name, value in pairs(read_sweep(s.SID)) do s[name] = value end
  s.PENDING = is_listed
end

-- Runs a change of a sweep that may move many trials, and updates its queue; returns {queue, tickets lacking}. A sweep
-- that was held, or over, and is no more, may be so again before a worker looks: the next notice is then another.
local function changing(s, change)
  local before, was_at_rest, was_pending = demand(s), is_at_rest(s), s.PENDING
  change()
  reread(s)
  if is_pending(s) and not was_pending then owners().share(s, {}) end  -- the reaper does so for pending sweeps only
  update_queue(s, before)
  if was_at_rest and not is_at_rest(s) then redis.call('DEL', key('notice', s.SID)) end
  return {s.queue, tickets(s)}
end

-- Returns the order of a sweep among the open ones of its queue: by priority, then by age. It is exact to 2 ms
-- at the highest priority, 1000.
local function order(priority, created_ms)
  return int(tonumber(created_ms) - (tonumber(priority) or 0) * PRIORITY)
end

-- Adds a sweep to the open sweeps of its queue, with what the limits of its owner let run now. Update its queue then:
-- its place among the pending sweeps may be another.
local function open(s)
  also(s, 'priority', 'created_ms')
  redis.call('ZADD', key('q', s.queue, 'open'), order(s.priority, s.created_ms), s.SID)
  redis.call('ZADD', key('histories'), int(OPEN + tonumber(s.created_ms)), s.SID)
  redis.call('HSET', key('q', s.queue, 'owners'), s.SID, s.owner or '')
  redis.call('HINCRBY', key('q', s.queue, 'busy'), s.owner or '', 0)
  redis.call('HSETNX', key('queues'), 'demand:' .. s.queue, 0)  -- the queue is known, though nothing may start
  owners().share(s, {})
  redis.call('ZREM', key('q', s.queue, 'pending'), s.SID)
  s.PENDING = false
end

-- Ends the suggestions of a sweep for a reason (stopped, cancelled, exhausted, …).
local function close_search(s, why)
  if is_set(s.sampler) and not is_set(s.no_more) then set(s, 'no_more', why) end
end

-- Errors of the server's own state, which pass (hpq/redis/damage.py).
local PASSING = {'OOM', 'read only replica', 'MISCONF', 'NOREPLICAS', 'permission', "can't run"}

-- Holds a sweep after an error in a part of a script that was for this sweep only.
local function hold_damaged(sid, found)
  local why = type(found) == 'table' and found.err or tostring(found)
  for _, passing in ipairs(PASSING) do
    if string.find(why, passing, 1, true) then error(found, 0) end
  end
  pcall(function()
    local s = also({KEY = sweep_key(sid)}, 'state')
    s.SID = sid
    local told = 'its record in Redis was damaged; enqueue it again with --reuse: ' .. string.sub(why, 1, 300)
    hold(s, 0, 0, 'damaged', told)
    save(s)
  end)
end

-- Runs a part of a script for one sweep; nil if it fails: another client of Redis may have written a field
-- that is no number. Then the sweep is held, and the script goes on with the others.
local function guarded(sid, change)
  local is_well, found = pcall(change)
  if is_well then return found end
  hold_damaged(sid, found)
end

return {PRIORITY = PRIORITY, OPEN = OPEN, reread = reread, changing = changing, open = open, close_search = close_search,
  guarded = guarded}
