-- Requeues trials whose lease expired, and corrects counts and tickets of the queue.
-- After a restart of the server (its run_id changes) no lease expires until one lease has passed.
-- KEYS prefix
-- ARGV {queue, lease_ms, lost_max, await_leases (the limits of hpq/domain/retry_policy.py), as_of_ms
--      (optional: the server's time when the worker last reaped; a delayed call judges leases by it),
--      every_ms (one call in this time corrects counts and tickets of the queue)}
-- Replies: settling | ok, then how many trials were requeued and how many ended (poison, or stopped
--      before), then queue and tickets pairs

local args = cjson.decode(ARGV[1])
local queue, lease, lost_max = args.queue, tonumber(args.lease_ms), tonumber(args.lost_max)
local await_ms = tonumber(args.await_leases) * lease
local as_of = math.min(NOW, tonumber(args.as_of_ms or NOW))

is_full()  -- the writes below succeed on a full server
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local settle = redis.call('HMGET', key('settle'), 'run_id', 'since')
if settle[1] ~= run_id then
  redis.call('HSET', key('settle'), 'run_id', run_id, 'since', int(NOW))
  -- An empty prefix has no leases of an earlier server.
  settle = {run_id, settle[1] and NOW or 0}
  if settle[2] == 0 then redis.call('HSET', key('settle'), 'since', '0') end
end
if NOW - (tonumber(settle[2]) or 0) < lease then return {'settling', 0, 0} end

local function poison(sid, n, t, f)
  local step, hosts = tonumber(f[4] or 0), f[6] or ''
  local lost = step > tonumber(f[5] or 0) and 1 or tonumber(f[3] or 0) + 1
  if lost == 1 then hosts = '' end
  if not string.find(',' .. hosts .. ',', ',' .. f[2] .. ',', 1, true) then
    hosts = hosts == '' and f[2] or hosts .. ',' .. f[2]
  end
  redis.call('HSET', t, 'lost', lost, 'lost_step', math.max(step, tonumber(f[5] or 0)), 'lost_hosts', hosts)
  if lost < lost_max then return false end
  if string.find(hosts, ',', 1, true) then return true end
  for _, other in ipairs(candidates(sid)) do
    if other.host ~= f[2] then return false end
  end
  return true
end

-- A trial that may end but not be requeued (of a stopped sweep, or stopped by early termination) waits
-- await_leases for its worker after the last heartbeat: the worker may be cut off, and its result
-- counts. A trial that a person cancelled does not wait.
local function awaits_worker(sid, n, stop, beat_ms)
  local is_to_end = stop == 'prune' or redis.call('HGET', sweep_key(sid), 'flag') == 'stopped'
  local until_ms = tonumber(beat_ms or 0) + await_ms
  if stop == 'stop' or not is_to_end or NOW >= until_ms then return false end
  redis.call('ZADD', key('leases'), int(math.min(until_ms, NOW + lease)), sid .. '/' .. n)
  return true
end

-- Ends trials that were lost before their sweep was stopped: no worker may claim them. Also ends trials
-- that a `hpq cancel` or `stop` that crashed has left.
local function end_rest_of_stopped(sid)
  local flag, ended = redis.call('HGET', sweep_key(sid), 'flag'), 0
  if flag ~= 'stopped' and flag ~= 'cancelled' then return 0 end
  changing(sid, function()
    for _, n in ipairs(redis.call('ZRANGEBYSCORE', sweep_key(sid, 'waiting'), '-inf', 0, 'LIMIT', 0, 100)) do
      local beat_ms = tonumber(redis.call('HGET', trial_key(sid, n), 'beat_ms') or 0)
      if NOW >= beat_ms + await_ms then
        cancel_waiting(sid, n)
        ended = ended + 1
      end
    end
    ended = ended + cancel_all_waiting(sid, flag == 'stopped')
  end)
  return ended
end

local wanted, requeued, ended = {}, 0, 0
local function reap(id, sid, n)
  local t, f = sid and trial_key(sid, n), {}
  -- A malformed lease, or one of a removed sweep, must not keep other trials from being requeued.
  if sid and sweep_exists(sid) then
    f = redis.call('HMGET', t, 'attempt', 'host', 'lost', 'step', 'lost_step', 'lost_hosts', 'beat_ms', 'stop')
  end
  if not f[1] then
    redis.call('ZREM', key('leases'), id)
  elseif not awaits_worker(sid, n, f[8], f[7]) then
    count('leases_expired')
    local want = changing(sid, function()
      leave_running(sid, n, tonumber(f[7]))
      if end_if_stopped(sid, n, f[1]) then
        ended = ended + 1
      elseif poison(sid, n, t, f) then
        local why = 'its worker was lost ' .. lost_max .. ' times without progress'
        finish(sid, n, f[1], 'failed', 'kind', 'poison', 'error', why)
        release_files(sid, n, false)
        ended = ended + 1
      else
        requeue(sid, n, f[1], 'lost', true, 'beat_ms', f[7] or 0)
        requeued = requeued + 1
      end
    end)
    wanted[#wanted + 1] = want[1]
    wanted[#wanted + 1] = want[2]
  end
  return true
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('leases'), '-inf', int(as_of), 'LIMIT', 0, 100)) do
  local sid, n = string.match(id, '^([^/]+)/(%d+)$')
  if not guarded(sid or '', function() return reap(id, sid, n) end) then
    redis.call('ZADD', key('leases'), int(NOW + lease), id)  -- until its record is mended
  end
end

-- Every worker reaps expired leases. The rest reads each open sweep, so one worker of the queue does it
-- in every_ms.
local stamp = 'booked:' .. queue
local done = tonumber(redis.call('HGET', key('settle'), stamp)) or 0
if done <= NOW and NOW - done < tonumber(args.every_ms) then return {'ok', requeued, ended, unpack(wanted)} end
redis.call('HSET', key('settle'), stamp, int(NOW))

-- Keeps points and logs below 30 % of maxmemory: drops those of the trials that ended first.
local function bound_bulk()
  local info = redis.call('INFO', 'memory')
  local limit = tonumber(string.match(info, 'maxmemory:(%d+)'))
  local budget = 0.3 * limit
  if limit == 0 or tonumber(string.match(info, 'used_memory:(%d+)')) < budget then return end
  local bytes = 0
  for _, sid in ipairs(redis.call('ZRANGE', key('bulk'), 0, -1)) do
    bytes = bytes + (tonumber(redis.call('HGET', sweep_key(sid), 'bulk')) or 0)
  end
  for _, id in ipairs(redis.call('ZRANGE', key('leases'), 0, -1)) do
    bytes = bytes + (tonumber(redis.call('HGET', key('t', id), 'log_bytes')) or 0)
  end
  if bytes > budget then free_memory(bytes - budget) end
end
bound_bulk()

-- Replaces a hash.
local function rewrite(name, fields)
  local flat = {}
  for field, value in pairs(fields) do flat[#flat + 1], flat[#flat + 2] = field, value end
  redis.call('DEL', name)
  for i = 1, #flat, 1000 do redis.call('HSET', name, unpack(flat, i, math.min(i + 999, #flat))) end
end

local sum, want, owners, busy = 0, 0, {}, {}
for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'open'), 0, -1)) do  -- it may close some
  ended = ended + (guarded(sid, function() return end_rest_of_stopped(sid) end) or 0)
end
for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'open'), 0, -1)) do
  guarded(sid, function()
    local owner = redis.call('HGET', sweep_key(sid), 'owner') or ''
    owners[sid], busy[owner] = owner, (busy[owner] or 0) + running(sid)
    sum = sum + demand(sid)
    want = want + tickets(sid, queue)
  end)
end
rewrite(key('q', queue, 'owners'), owners)
rewrite(key('q', queue, 'busy'), busy)
set_demand(queue, sum - redis.call('LLEN', key('demand', queue)))
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', int(NOW - 3600000))  -- silent for an hour
redis.call('ZREMRANGEBYSCORE', key('q', queue, 'idle'), '-inf', int(NOW - FRESH_MS))
return {'ok', requeued, ended, queue, want, unpack(wanted)}
