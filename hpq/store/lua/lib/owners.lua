-- Operators' limits of owners, and the ledger of running attempts by which a claim applies them. Both lie under
-- keys that producers may only read (hpq/store/keys.py). The owner is the name that the sweep says.

local SPENT = P .. '.spent'
local function ledger(owner) return P .. '.running:' .. owner end

-- Returns a hash as a table.
local function read(name)
  local flat, found = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

local all  -- the limits, read once
local function limit(owner, name)
  all = all or read(P .. '.limits')
  return tonumber(all[owner .. '/' .. name] or all['*/' .. name])
end

-- True if operators have set a limit for any owner: then the ledger has every attempt.
local function exist()
  all = all or read(P .. '.limits')
  return next(all) ~= nil
end

-- An entry: GPUs, up to when their time is in SPENT, and when the entry expires unless a beat extends it.
local function entry_of(text)
  local gpus, charged, until_ms = string.match(text or '', '^(%S+) (%S+) (%S+)$')
  return tonumber(gpus), tonumber(charged), tonumber(until_ms)
end
local function field(a) return table.concat({a.sweep, a.number, a.attempt, a.nonce}, '/') end
local function put(owner, name, gpus, lease)
  redis.call('HSET', ledger(owner), name, table.concat({gpus, NOW_MS, int(NOW + lease)}, ' '))
end

-- Returns how many attempts of an owner run, what of their GPU-ms is not in SPENT yet, and the expired entries.
local function running(owner)
  local count, uncharged, expired = 0, 0, {}
  for name, text in pairs(read(ledger(owner))) do
    local gpus, charged, until_ms = entry_of(text)
    if until_ms > NOW then
      count, uncharged = count + 1, uncharged + math.max(0, NOW - charged) * gpus
    else
      expired[#expired + 1] = name
    end
  end
  return count, uncharged, expired
end

-- Returns how many further trials of an owner may run, and the expired entries.
local function room(owner)
  local most, gpu_ms = limit(owner, 'running'), limit(owner, 'gpu_ms')
  local count, uncharged, expired = running(owner)
  local left = most and math.max(0, most - count) or math.huge
  if gpu_ms and (tonumber(redis.call('HGET', SPENT, owner)) or 0) + uncharged >= gpu_ms then left = 0 end
  return left, expired
end

-- True if a priority is within an owner's limit.
local function allows_priority(owner, priority)
  local most = limit(owner, 'priority')
  return not most or (tonumber(priority or 0) or math.huge) <= most
end

-- True if a trial of a sweep may start. Removes expired entries: what they used is in SPENT up to the last beat.
local rooms = {}
local function allow(s)
  if not exist() then return true end
  local owner = s.owner or ''
  if not allows_priority(owner, s.priority) then return false end
  if not rooms[owner] then
    local left, expired = room(owner)
    if expired[1] then redis.call('HDEL', ledger(owner), unpack(expired, 1, math.min(#expired, 1000))) end
    rooms[owner] = left
  end
  return rooms[owner] > 0
end

-- Notes in the ledger that an attempt of an owner begins.
local function enter(owner, attempt, gpus, lease) put(owner, field(attempt), gpus, lease) end

-- Charges what an attempt has used since it was last charged. Returns its GPUs, if the ledger has it.
local function charge(a)
  local gpus, charged = entry_of(redis.call('HGET', ledger(a.owner), field(a)))
  if not gpus then return end
  local used = math.max(0, NOW - charged) * gpus
  if used > 0 then redis.call('HINCRBY', SPENT, a.owner, int(used)) end
  return gpus
end

-- Extends the entry of an attempt that runs. It is entered again if it had expired: an outage of Redis is over.
local function extend(a, gpus)
  put(a.owner, field(a), charge(a) or gpus, tonumber(a.lease_ms))
end

-- Removes the entry of an attempt that has ended; `is_free`: its training never began.
local function leave(a, is_free)
  if not is_free then charge(a) end
  redis.call('HDEL', ledger(a.owner), field(a))
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

return {exist = exist, allow = allow, enter = enter, extend = extend, leave = leave, share = share}
