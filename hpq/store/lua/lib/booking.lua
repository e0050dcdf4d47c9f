-- Corrects the counts of a queue, which claims and ends keep.

-- Replaces a hash.
local function rewrite(name, fields)
  local flat = {}
  for field, value in pairs(fields) do flat[#flat + 1], flat[#flat + 2] = field, value end
  redis.call('DEL', name)
  for i = 1, #flat, 1000 do redis.call('HSET', name, unpack(flat, i, math.min(i + 999, #flat))) end
end

-- Counts the trials of a queue again; returns the tickets that it lacks. `rooms_left` as in lib/owners.lua.
local function book(queue, rooms_left)
  local sum, want, held, owner_of, busy = 0, 0, 0, {}, {}
  for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'open'), 0, -1)) do
    sweeps().guarded(sid, function()
      local s = read_sweep(sid, 'priority')
      if not s.queue then return redis.call('ZREM', key('q', queue, 'open'), sid) end  -- removed, as it was unreadable
      sum_starts(s)  -- corrects the sum, as the counts
      weigh_budget(s)  -- its time may be up
      owners().share(s, rooms_left)
      save(s)
      local owner = s.owner or ''
      owner_of[sid], busy[owner] = owner, (busy[owner] or 0) + s.RUNNING
      sum = sum + tonumber(int(demand(s)))
      want = want + useful_tickets(s)
      if s.state == 'held' then held = held + 1 end
    end)
  end
  rewrite(key('q', queue, 'owners'), owner_of)
  rewrite(key('q', queue, 'busy'), busy)
  redis.call('HSET', key('settle'), 'demand:' .. queue, int(sum), 'held:' .. queue, held)
  fit_demand(queue, redis.call('LLEN', key('demand', queue)), sum)
  redis.call('ZREMRANGEBYSCORE', key('q', queue, 'idle'), '-inf', int(NOW - FRESH_MS))
  return lacking(queue, want)
end

return {book = book}
