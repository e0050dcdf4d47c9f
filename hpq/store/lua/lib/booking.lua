-- Corrects the counts of a queue, which claims and ends keep.

local AT_ONCE = 20  -- open sweeps that each call may read

-- Replaces a hash.
local function rewrite(name, fields)
  local flat = {}
  for field, value in pairs(fields) do flat[#flat + 1], flat[#flat + 2] = field, value end
  redis.call('DEL', name)
  for i = 1, #flat, 1000 do redis.call('HSET', name, unpack(flat, i, math.min(i + 999, #flat))) end
end

-- Returns the pending sweeps of a queue as a set.
local function listed(queue)
  local found = {}
  for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'pending'), 0, -1)) do found[sid] = true end
  return found
end

-- Counts the trials of a queue again; returns the tickets that it lacks. Reads the pending sweeps, which are those that
-- time and the limits of owners change. Of the open ones AT_ONCE are read in every_ms on average, all in one call: that
-- corrects what scripts keep. `rooms_left` as in lib/owners.lua.
local function book(queue, rooms_left, every_ms)
  local open, stamp = key('q', queue, 'open'), 'counted:' .. queue
  local since = NOW - (tonumber(redis.call('HGET', key('queues'), stamp)) or 0)
  local is_whole = since < 0 or since >= every_ms * redis.call('ZCARD', open) / AT_ONCE
  local sum, want, owner_of, busy = 0, 0, {}, {}
  local was_listed = is_whole and listed(queue)
  for _, sid in ipairs(redis.call('ZRANGE', is_whole and open or key('q', queue, 'pending'), 0, -1)) do
    sweeps().guarded(sid, function()
      local s = read_sweep(sid, 'priority')
      if not s.queue then  -- removed, as it was unreadable
        redis.call('ZREM', key('q', queue, 'pending'), sid)
        return redis.call('ZREM', open, sid)
      end
      s.PENDING = not is_whole or was_listed[sid] == true
      if is_set(s.budget_ms) then
        budget().count_starts(s)
        budget().check(s)  -- its time may be up
      end
      owners().share(s, rooms_left)
      save(s)
      list(s)
      if is_done(s) then return close(s) end
      local owner = s.owner or ''
      owner_of[sid], busy[owner] = owner, (busy[owner] or 0) + s.RUNNING
      sum = sum + tonumber(int(startable(s)))
      want = want + useful_tickets(s)
    end)
  end
  local counted = {}
  if is_whole then
    rewrite(key('q', queue, 'owners'), owner_of)
    rewrite(key('q', queue, 'busy'), busy)
    counted = {stamp, NOW_MS}
  else
    busy = read_hash(key('q', queue, 'busy'))
  end
  for _, running in pairs(busy) do sum = sum + math.max(0, tonumber(running) or 0) end
  redis.call('HSET', key('queues'), 'demand:' .. queue, int(sum), unpack(counted))
  fit_demand(queue, redis.call('LLEN', key('demand', queue)), sum)
  redis.call('ZREMRANGEBYSCORE', key('q', queue, 'idle'), '-inf', int(NOW - IDLE_MS))
  return lacking(queue, want)
end

return {book = book}
