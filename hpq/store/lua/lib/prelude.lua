-- What every script shares: names, the clock, events, and what of a sweep could be claimed.
-- hpq/store/scripts.py puts this text, points.lua, files.lua and moves.lua before each of them.
-- KEYS[1] is the prefix, and all other names are built from it here as hpq/store/keys.py builds them
-- (a test compares the two). All times are the server's, in integer milliseconds.

local P = KEYS[1]

local function key(...) return table.concat({P, ...}, ':') end
local function sweep_key(sid, part) return part and key('s', sid, part) or key('s', sid) end
local function trial_key(sid, n, ...) return key('t', sid .. '/' .. n, ...) end
local function int(x) return string.format('%.0f', x) end

local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)

local FRONT = 1000000000  -- a requeued trial waits at its number minus this: before all others
local COMING = 1000       -- at most so many sets that are yet to be made count
local FRESH_MS = 30000    -- an idle worker or a host not seen for so long does not count

-- Appends to the sweep's events. The hash of a claimed trial keeps the ids of its own newest ~120
-- events, so a reader of one trial does not read the events of all others.
local function event(sid, what, n, attempt, ...)
  local id = redis.call('XADD', sweep_key(sid, 'events'), '*', 'e', what, 'n', n, 'a', attempt, ...)
  if tonumber(n) == 0 or tonumber(attempt) == 0 or what == 'held' then return end
  local ids = (redis.call('HGET', trial_key(sid, n), 'event_ids') or '') .. id .. ' '
  if #ids > 2000 then ids = string.sub(ids, string.find(ids, ' ', #ids - 2000, true) + 1) end
  redis.call('HSET', trial_key(sid, n), 'event_ids', ids)
end

-- True where another claim has the attempt of this number: a server that lost its last second, or
-- whose sweep was restored, gives a number out again. Workers and claims of an older version tell none.
local function is_other_claim(owner, nonce)
  return (owner or '') ~= '' and (nonce or '') ~= '' and owner ~= nonce
end

local function count(what) redis.call('HINCRBY', key('counters'), what, 1) end

-- False once a sweep was removed; its trials may be there a little longer.
local function is_there(sid) return redis.call('HEXISTS', sweep_key(sid), 'class') == 1 end

local function running(sid) return redis.call('ZCARD', sweep_key(sid, 'running')) end

-- How many sets of a late-bound sweep may still be made; 0 for any other. An open-ended one has no
-- number, so more than COMING count as COMING.
local function to_come(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'sampler', 'run_cap', 'no_more')
  if (f[1] or '') == '' or (f[3] or '') ~= '' then return 0 end
  local cap = tonumber(f[2]) or 0
  if cap == 0 then return COMING end
  return math.max(0, math.min(COMING, cap - redis.call('HLEN', sweep_key(sid, 'params'))))
end

-- No further sets of a late-bound sweep are made, for this reason (stopped, cancelled, exhausted, …).
local function close_search(sid, why)
  local f = redis.call('HMGET', sweep_key(sid), 'sampler', 'no_more')
  if (f[1] or '') ~= '' and (f[2] or '') == '' then redis.call('HSET', sweep_key(sid), 'no_more', why) end
end

-- True where nothing of a sweep waits, runs or may still come.
local function is_done(sid)
  return redis.call('ZCARD', sweep_key(sid, 'waiting')) + running(sid) + to_come(sid) == 0
end

-- How many trials of a sweep could be claimed now, also such as have yet to be made.
local function claimable(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'flag', 'held', 'max_parallel', 'canary', 'n_finished',
    'n_pruned')
  if (f[1] or '') ~= '' or (f[2] or '') ~= '' then return 0 end
  local room = redis.call('ZCARD', sweep_key(sid, 'waiting')) + to_come(sid)
  local cap, canary = tonumber(f[3]) or 0, tonumber(f[4]) or 0
  if cap > 0 then room = math.min(room, cap - running(sid)) end
  if canary > 0 then room = math.min(room, canary - (tonumber(f[5]) or 0) - (tonumber(f[6]) or 0) - running(sid)) end
  return math.max(0, room)
end

local function demand(sid) return running(sid) + claimable(sid) end

local function set_demand(class, by)
  local list = key('demand', class)
  if by < 0 then redis.call('LTRIM', list, 0, by - 1) end
  while by > 0 do
    local some = {}
    for i = 1, math.min(by, 1000) do some[i] = '1' end
    redis.call('RPUSH', list, unpack(some))
    by = by - #some
  end
end

-- True where sets may be made and nobody holds the lease for making them.
local function lacks_suggester(sid)
  local ends = tonumber(redis.call('HGET', sweep_key(sid), 'suggest_until') or 0)
  return ends <= NOW and claimable(sid) > 0 and to_come(sid) > 0
end

-- How many tickets the class should have because of this sweep: for what waits, and for one who makes
-- sets where nobody does.
local function tickets(sid, class)
  local idle = redis.call('ZCOUNT', key('c', class, 'idle'), NOW - FRESH_MS, '+inf')
  local ready = math.min(claimable(sid), redis.call('ZCARD', sweep_key(sid, 'waiting')))
  if ready == 0 and lacks_suggester(sid) then return 1 end
  return math.min(ready, idle + 8)
end

-- Nothing of a sweep can be claimed or runs.
local function close(sid, class)
  redis.call('ZREM', key('c', class, 'open'), sid)
  redis.call('HDEL', key('c', class, 'owners'), sid)
end

-- Books about how many trials of a sweep's owner run in its class; the reaper puts them right.
local function count_busy(sid, by)
  local f = redis.call('HMGET', sweep_key(sid), 'class', 'owner')
  if f[1] and by ~= 0 then redis.call('HINCRBY', key('c', f[1], 'busy'), f[2] or '', by) end
end

-- Runs a change of a sweep and keeps the demand list in step; answers {class, tickets wanted}.
local function changing(sid, change)
  local class, before = redis.call('HGET', sweep_key(sid), 'class'), demand(sid)
  change()
  set_demand(class, demand(sid) - before)
  if is_done(sid) then close(sid, class) end
  return {class, tickets(sid, class)}
end

-- Where a sweep stands in its class: priority first, then age; exact to 2 ms at the highest, 1000.
local PRIORITY = 1e13  -- ms, more than any time since 1970
local function open(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'class', 'priority', 'created_ms', 'owner')
  local order = int(tonumber(f[3]) - (tonumber(f[2]) or 0) * PRIORITY)
  redis.call('ZADD', key('c', f[1], 'open'), order, sid)
  redis.call('HSET', key('c', f[1], 'owners'), sid, f[4] or '')
  redis.call('HINCRBY', key('c', f[1], 'busy'), f[4] or '', 0)
end

-- Lets nothing more of a sweep start until a person says so.
local function hold(sid, n, attempt, why)
  if (redis.call('HGET', sweep_key(sid), 'held') or '') ~= '' then return end
  redis.call('HSET', sweep_key(sid), 'held', why)
  event(sid, 'held', n, attempt, 'why', why)
end

-- A failed trial holds a sweep whose first ones have to pass before the rest may be claimed.
local function hold_failed_canary(sid, n, attempt, kind, why)
  if tonumber(redis.call('HGET', sweep_key(sid), 'canary') or 0) > 0 then
    hold(sid, n, attempt, 'canary #' .. n .. ' failed, ' .. kind .. ': ' .. why)
  end
end

-- True while a worker takes nothing because a person said so: until a time in ms, or for good (0).
local function is_drained(till)
  return (till or '') ~= '' and (tonumber(till) == 0 or tonumber(till) > NOW)
end

-- The live workers, read once a call however often they are asked about: {name, fields} each.
local live
local function live_workers()
  if live then return live end
  live = {}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key('workers'), int(NOW - FRESH_MS), '+inf')) do
    live[#live + 1] = {name, redis.call('HMGET', key('w', name), 'class', 'state', 'refuses', 'only', 'host',
      'store_id', 'trial', 'drain')}
  end
  return live
end

-- Those that might take a sweep's trials: {name, host, idle, store, sweep (what it runs)} each.
local function candidates(sid)
  local class, found = redis.call('HGET', sweep_key(sid), 'class'), {}
  for _, one in ipairs(live_workers()) do
    local w = one[2]
    local refuses = string.find(w[3] or '', '"' .. sid .. '"', 1, true) or (w[4] or '') ~= '' and w[4] ~= sid
    if w[1] == class and w[2] ~= 'stopping' and not refuses and not is_drained(w[8]) then
      found[#found + 1] = {name = one[1], host = w[5], idle = w[2] == 'idle', store = w[6],
        sweep = string.match(w[7] or '', '^[^/]+')}
    end
  end
  return found
end

-- True where the server is at its maxmemory; call it before any other write. A server refuses a
-- script for that at its first write only, and some writes, as ZREM, it lets through: after
-- this call nothing is refused. Neither write changes anything.
local function is_full()
  local answer = redis.pcall('ZADD', key('leases'), 'XX', 0, '')
  redis.call('ZREM', key('leases'), '')
  return type(answer) == 'table' and answer.err ~= nil and string.find(answer.err, 'OOM', 1, true) ~= nil
end
