-- What every script shares; hpq/scripts.py puts this text before each of them.
-- KEYS[1] is the prefix, and all other names are built from it here as hpq/keys.py builds them
-- (a test compares the two). All times are the server's, in integer milliseconds.

local P = KEYS[1]

local function key(...) return table.concat({P, ...}, ':') end
local function sweep_key(sid, part) return part and key('s', sid, part) or key('s', sid) end
local function trial_key(sid, n, ...) return key('t', sid .. '/' .. n, ...) end
local function int(x) return string.format('%.0f', x) end

local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)

local FRONT = 1000000000  -- a requeued trial waits at its number minus this: before all others
local FRESH_MS = 30000    -- an idle worker or a host not seen for so long does not count

local function event(sid, what, n, attempt, ...)
  redis.call('XADD', sweep_key(sid, 'events'), '*', 'e', what, 'n', n, 'a', attempt, ...)
end

local function count(what) redis.call('HINCRBY', key('counters'), what, 1) end

local function running(sid) return redis.call('ZCARD', sweep_key(sid, 'running')) end

-- How many trials of a sweep could be claimed now.
local function claimable(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'flag', 'held', 'max_parallel')
  if (f[1] or '') ~= '' or (f[2] or '') ~= '' then return 0 end
  local waiting, cap = redis.call('ZCARD', sweep_key(sid, 'waiting')), tonumber(f[3]) or 0
  if cap == 0 then return waiting end
  return math.max(0, math.min(waiting, cap - running(sid)))
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

-- How many tickets the class should have because of this sweep.
local function tickets(sid, class)
  local idle = redis.call('ZCOUNT', key('c', class, 'idle'), NOW - FRESH_MS, '+inf')
  return math.min(claimable(sid), idle + 8)
end

-- Runs a change of a sweep and keeps the demand list in step; answers {class, tickets wanted}.
local function changing(sid, change)
  local class, before = redis.call('HGET', sweep_key(sid), 'class'), demand(sid)
  change()
  set_demand(class, demand(sid) - before)
  if redis.call('ZCARD', sweep_key(sid, 'waiting')) + running(sid) == 0 then
    redis.call('ZREM', key('c', class, 'open'), sid)
  end
  return {class, tickets(sid, class)}
end

-- Where a sweep stands in its class: priority first, then age. Exact below 2^53.
local function open(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'class', 'priority', 'created_ms')
  local order = int(tonumber(f[3]) - (tonumber(f[2]) or 0) * 1e13)
  redis.call('ZADD', key('c', f[1], 'open'), order, sid)
end

-- Nothing of what the trial reported stays.
local function forget_points(sid, n)
  local t = trial_key(sid, n)
  for _, field in ipairs(redis.call('HKEYS', t)) do
    if string.sub(field, 1, 2) == 'm:' then
      redis.call('DEL', trial_key(sid, n, 'p', string.sub(field, 3)))
      redis.call('HDEL', t, field)
    end
  end
end

-- The running attempt is over, one way or the other.
local function let_go(sid, n)
  redis.call('ZREM', sweep_key(sid, 'running'), n)
  redis.call('ZREM', key('leases'), sid .. '/' .. n)
end

-- Back to the front of the queue. The attempt is closed unless its lease was reaped, in which case
-- its worker may still come back.
local function requeue(sid, n, attempt, reason, reaped)
  local t = trial_key(sid, n)
  let_go(sid, n)
  redis.call('ZADD', sweep_key(sid, 'waiting'), n - FRONT, n)
  redis.call('HSET', t, 'state', 'queued', reaped and 'reaped' or 'closed', attempt)
  event(sid, 'requeued', n, attempt, 'reason', reason)
end

-- Into a terminal state. `...` are further fields for both the trial's hash and the event.
local function finish(sid, n, attempt, state, ...)
  let_go(sid, n)
  redis.call('ZREM', sweep_key(sid, 'waiting'), n)
  redis.call('HSET', trial_key(sid, n), 'state', state, 'closed', attempt, 'ended_ms', int(NOW), ...)
  redis.call('ZADD', sweep_key(sid, 'ended'), int(NOW), n)
  redis.call('HINCRBY', sweep_key(sid), 'n_' .. state, 1)
  event(sid, state, n, attempt, ...)
end
