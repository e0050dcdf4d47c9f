-- Operators' limits of owners. The owner is the name that the sweep says. Its running trials are those that the
-- queues count (P:q:Q:busy), its GPU time is in P:spent.

local all  -- the limits, read once
local function limits()
  all = all or read_hash(P .. '.limits')
  return all
end
local function limit(owner, name) return tonumber(limits()[owner .. '/' .. name] or limits()['*/' .. name]) end

-- True if operators have set a limit for any owner: then the GPU time of an attempt counts.
local function exist() return next(limits()) ~= nil end

-- Returns the names of all queues.
local function queues()
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', key('queues'))) do
    found[#found + 1] = string.match(field, '^demand:(.+)$')
  end
  return found
end

-- Returns how many further trials of an owner may run.
local function room(owner)
  local most, gpu_ms = limit(owner, 'running'), limit(owner, 'gpu_ms')
  if gpu_ms and (tonumber(redis.call('HGET', key('spent'), owner)) or 0) >= gpu_ms then return 0 end
  if not most then return math.huge end
  local running = 0
  for _, queue in ipairs(queues()) do
    running = running + (tonumber(redis.call('HGET', key('q', queue, 'busy'), owner)) or 0)
  end
  return math.max(0, most - running)
end

-- True if a priority is within an owner's limit.
local function allows_priority(owner, priority)
  local most = limit(owner, 'priority')
  return not most or (tonumber(priority or 0) or math.huge) <= most
end

-- True if a trial of a sweep may start.
local rooms = {}
local function allow(s)
  if not exist() then return true end
  local owner = s.owner or ''
  if not allows_priority(owner, s.priority) then return false end
  rooms[owner] = rooms[owner] or room(owner)
  return rooms[owner] > 0
end

-- Sets how many trials of an open sweep its owner's limits let run, for its demand. `rooms_left`: what the
-- sweeps before it have left, by owner.
local function share(s, rooms_left)
  local owner, most = s.owner or '', ''
  if exist() then
    rooms_left[owner] = rooms_left[owner] or room(owner)
    local left = allows_priority(owner, s.priority) and rooms_left[owner] or 0
    if left < math.huge then
      most = int(s.RUNNING + left)
      rooms_left[owner] = rooms_left[owner] - math.min(left, claimable(s))
    end
  end
  if most ~= (s.may_run or '') then set(s, 'may_run', most) end
end

-- Adds the GPU time of an attempt, up to a time, to that of its owner. A beat and the end of the attempt charge it if
-- a limit of any owner was set at its claim: only then does the trial have `charged_ms`, up to when it was charged.
local function charge(s, t, until_ms)
  local used = (until_ms - t.charged_ms) * (also(t, 'gpus').gpus or 1)
  if used > 0 then redis.call('HINCRBY', key('spent'), s.owner or '', int(used)) end
  set(t, 'charged_ms', int(until_ms))
end

return {exist = exist, queues = queues, allow = allow, share = share, charge = charge}
