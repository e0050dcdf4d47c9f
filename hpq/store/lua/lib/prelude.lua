-- Shared by all scripts: keys, the clock, events, and the demand of a sweep. hpq/store/scripts.py
-- prepends this text, points.lua, files.lua and moves.lua to every script. KEYS[1] is the prefix; all
-- other keys are built from it as in hpq/store/keys.py (a test compares them). Times are the server's,
-- in integer milliseconds.

local P = KEYS[1]

local function key(...) return table.concat({P, ...}, ':') end
local function sweep_key(sid, part) return part and key('s', sid, part) or key('s', sid) end
local function trial_key(sid, n, ...) return key('t', sid .. '/' .. n, ...) end
local function int(x) return string.format('%.0f', x) end

local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)

local FRONT = 1000000000  -- the score of a requeued trial is its number minus this, of a retried one minus twice this
local COMING = 1000       -- at most this many trials still to be suggested count
local FRESH_MS = 30000    -- a worker that was silent for longer does not count

-- Appends to the sweep's events. The hash of a claimed trial keeps the ids of its own newest ~120
-- events, so a reader of one trial does not read the events of all others.
local function event(sid, what, n, attempt, ...)
  local id = redis.call('XADD', sweep_key(sid, 'events'), '*', 'e', what, 'n', n, 'a', attempt, ...)
  if tonumber(n) == 0 or tonumber(attempt) == 0 or what == 'held' then return end
  local ids = (redis.call('HGET', trial_key(sid, n), 'event_ids') or '') .. id .. ' '
  if #ids > 2000 then ids = string.sub(ids, string.find(ids, ' ', #ids - 2000, true) + 1) end
  redis.call('HSET', trial_key(sid, n), 'event_ids', ids)
end

-- True if another claim owns the attempt of this number: a server that lost its last second, or whose
-- sweep was restored, assigns a number again.
local function is_other_claim(owner, nonce)
  return (owner or '') ~= '' and owner ~= nonce
end

local function count(what) redis.call('HINCRBY', key('counters'), what, 1) end

-- False once a sweep was removed; its trials may exist a little longer.
local function sweep_exists(sid) return redis.call('HEXISTS', sweep_key(sid), 'queue') == 1 end

local function running(sid) return redis.call('ZCARD', sweep_key(sid, 'running')) end

-- Returns how many trials of a suggested sweep may still be added (at most COMING, also for an
-- open-ended sweep); 0 for any other sweep.
local function to_come(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'sampler', 'run_cap', 'no_more')
  if (f[1] or '') == '' or (f[3] or '') ~= '' then return 0 end
  local cap = tonumber(f[2]) or 0
  if cap == 0 then return COMING end
  return math.max(0, math.min(COMING, cap - redis.call('HLEN', sweep_key(sid, 'params'))))
end

-- Ends the suggestions of a sweep for a reason (stopped, cancelled, exhausted, …).
local function close_search(sid, why)
  local f = redis.call('HMGET', sweep_key(sid), 'sampler', 'no_more')
  if (f[1] or '') ~= '' and (f[2] or '') == '' then redis.call('HSET', sweep_key(sid), 'no_more', why) end
end

-- True if no trial of a sweep waits, runs or may still be added.
local function is_done(sid)
  return redis.call('ZCARD', sweep_key(sid, 'waiting')) + running(sid) + to_come(sid) == 0
end

-- Returns how many trials of a sweep could be claimed now, including trials still to be added.
local function claimable(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'flag', 'held', 'max_parallel')
  if (f[1] or '') ~= '' or (f[2] or '') ~= '' then return 0 end
  local waiting = redis.call('ZCARD', sweep_key(sid, 'waiting')) + to_come(sid)
  local cap = tonumber(f[3]) or 0
  if cap > 0 then waiting = math.min(waiting, cap - running(sid)) end
  return math.max(0, waiting)
end

local function demand(sid) return running(sid) + claimable(sid) end

local function set_demand(queue, by)
  local list = key('demand', queue)
  if by < 0 then redis.call('LTRIM', list, 0, by - 1) end
  while by > 0 do
    local batch = {}
    for i = 1, math.min(by, 1000) do batch[i] = '1' end
    redis.call('RPUSH', list, unpack(batch))
    by = by - #batch
  end
end

-- True if trials may be suggested and no suggester holds the lease.
local function lacks_suggester(sid)
  local ends = tonumber(redis.call('HGET', sweep_key(sid), 'suggest_until') or 0)
  return ends <= NOW and claimable(sid) > 0 and to_come(sid) > 0
end

-- Returns how many tickets of the queue this sweep needs: for waiting trials, or one for a worker that
-- starts a suggester.
local function tickets(sid, queue)
  local idle = redis.call('ZCOUNT', key('q', queue, 'idle'), NOW - FRESH_MS, '+inf')
  local ready = math.min(claimable(sid), redis.call('ZCARD', sweep_key(sid, 'waiting')))
  if ready == 0 and lacks_suggester(sid) then return 1 end
  return math.min(ready, idle + 8)
end

-- Removes a sweep without claimable and running trials from the open sweeps of its queue.
local function close(sid, queue)
  redis.call('ZREM', key('q', queue, 'open'), sid)
  redis.call('HDEL', key('q', queue, 'owners'), sid)
end

-- Adds to the number of running trials of the sweep's owner in its queue; the reaper corrects it.
local function count_busy(sid, by)
  local f = redis.call('HMGET', sweep_key(sid), 'queue', 'owner')
  if f[1] and by ~= 0 then redis.pcall('HINCRBY', key('q', f[1], 'busy'), f[2] or '', by) end
end

-- Runs a change of a sweep and updates the demand list; returns {queue, tickets}.
local function changing(sid, change)
  local queue, before = redis.call('HGET', sweep_key(sid), 'queue'), demand(sid)
  change()
  set_demand(queue, demand(sid) - before)
  if is_done(sid) then close(sid, queue) end
  return {queue, tickets(sid, queue)}
end

-- Adds a sweep to the open sweeps of its queue, ordered by priority, then age. The order is exact to
-- 2 ms at the highest priority, 1000.
local PRIORITY = 1e13  -- ms, more than any time since 1970
local function open(sid)
  local f = redis.call('HMGET', sweep_key(sid), 'queue', 'priority', 'created_ms', 'owner')
  local order = int(tonumber(f[3]) - (tonumber(f[2]) or 0) * PRIORITY)
  redis.call('ZADD', key('q', f[1], 'open'), order, sid)
  redis.call('HSET', key('q', f[1], 'owners'), sid, f[4] or '')
  redis.call('HINCRBY', key('q', f[1], 'busy'), f[4] or '', 0)
end

-- Holds a sweep: no trial starts until a person resumes it.
local function hold(sid, n, attempt, why)
  if (redis.call('HGET', sweep_key(sid), 'held') or '') ~= '' then return end
  redis.call('HSET', sweep_key(sid), 'held', why)
  event(sid, 'held', n, attempt, 'why', why)
end

-- Runs a part of a script for one sweep; nil if it fails. Another client of Redis may have written a
-- field that is no number: then that sweep is held, and the script goes on with the others.
local function guarded(sid, part)
  local is_done, found = pcall(part)
  if is_done then return found end
  local why = type(found) == 'table' and found.err or tostring(found)
  if string.find(why, 'OOM', 1, true) then error(found, 0) end
  pcall(hold, sid, 0, 0, 'its record in Redis was damaged; enqueue it again with --reuse: ' .. why)
end

-- True while a worker is drained: until a time in ms, or for good (0).
local function is_drained(until_ms)
  local at = tonumber(until_ms)
  return at ~= nil and (at == 0 or at > NOW)
end

-- The live workers, read once per call: {name, fields} each.
local live
local function live_workers()
  if live then return live end
  live = {}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key('workers'), int(NOW - FRESH_MS), '+inf')) do
    live[#live + 1] = {name, redis.call('HMGET', key('w', name), 'queue', 'state', 'refuses', 'only', 'host',
      'store_id', 'trial', 'drain')}
  end
  return live
end

-- Returns the workers that may claim a sweep's trials: {name, host, idle, store, sweep (it runs)} each.
local function candidates(sid)
  local queue, found = redis.call('HGET', sweep_key(sid), 'queue'), {}
  for _, worker in ipairs(live_workers()) do
    local w = worker[2]
    local refuses = string.find(w[3] or '', '"' .. sid .. '"', 1, true) or (w[4] or '') ~= '' and w[4] ~= sid
    if w[1] == queue and w[2] ~= 'stopping' and not refuses and not is_drained(w[8]) then
      found[#found + 1] = {name = worker[1], host = w[5], idle = w[2] == 'idle', store = w[6],
        sweep = string.match(w[7] or '', '^[^/]+')}
    end
  end
  return found
end

-- True if the server is at its maxmemory. Call it before any other write: a full server refuses only
-- the first write of a script, and never ZREM, so no write after this call is refused. Neither write
-- changes anything.
local function is_full()
  local answer = redis.pcall('ZADD', key('leases'), 'XX', 0, '')
  redis.call('ZREM', key('leases'), '')
  return type(answer) == 'table' and answer.err ~= nil and string.find(answer.err, 'OOM', 1, true) ~= nil
end
