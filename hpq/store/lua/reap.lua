-- Requeues trials whose lease expired or whose process is dead, drops logs and curves if the server is short of
-- memory, and corrects counts and tickets of the queue.
-- After a restart of the server (its run_id changes) no lease expires until one lease has passed.
-- KEYS prefix
-- ARGV {queue, lease_ms, lost_max, await_leases (the limits of hpq/domain/retry_policy.py), as_of_ms
--      (optional: the server's time when the worker last reaped; a delayed call judges leases by it),
--      every_ms (one call in this time corrects counts and tickets of the queue, lib/booking.lua), dead (optional
--      list of attempts whose process is known to be dead, each trial/token of its claim)}
-- Replies: settling | ok, then how many trials were requeued and how many ended (poison, or stopped
--      before), then queue and tickets pairs

local args = cjson.decode(ARGV[1])
local queue, lease, lost_max = args.queue, tonumber(args.lease_ms), tonumber(args.lost_max)
local await_ms = tonumber(args.await_leases) * lease
local as_of = math.min(NOW, tonumber(args.as_of_ms or NOW))

local since, newest = server_restarts().look()
if since <= NOW and NOW - since < lease then return {'settling', 0, 0} end

-- Trials whose running attempt is one of the dead: its lease ends now.
local dead = {}
for _, lost in ipairs(args.dead or {}) do
  local id, token = string.match(lost, '^(.+)/(.+)$')
  local f = redis.pcall('HMGET', key('t', id), 'state', 'attempt', 'nonce')
  if f[1] == 'running' and string.find((f[2] or '') .. '-' .. (f[3] or ''), token, 1, true) == 1 then
    redis.call('ZADD', key('leases'), 'XX', 0, id)
    dead[id] = true
  end
end

-- True if the trial is to end: it was lost too often without progress.
local function poison(s, t)
  local f = redis.call('HMGET', t.KEY, 'lost', 'lost_step', 'lost_hosts')
  local step, furthest, hosts = tonumber(t.step or 0), tonumber(f[2] or 0), f[3] or ''
  local lost = step > furthest and 1 or tonumber(f[1] or 0) + 1
  if lost == 1 then hosts = '' end
  if not string.find(',' .. hosts .. ',', ',' .. t.host .. ',', 1, true) then
    hosts = hosts == '' and t.host or hosts .. ',' .. t.host
  end
  set(t, 'lost', lost)
  set(t, 'lost_step', math.max(step, furthest))
  set(t, 'lost_hosts', hosts)
  if lost < lost_max then return false end
  if string.find(hosts, ',', 1, true) then return true end
  for other in workers().candidates(s) do
    if other.host ~= t.host then return false end
  end
  return true
end

-- A trial that may end but not be requeued (of a stopped sweep, or stopped by early termination) waits
-- await_leases for its worker after the last heartbeat: the worker may be cut off, and its result
-- counts. A trial that a person cancelled does not wait.
local function awaits_worker(s, t)
  local is_to_end = t.stop == 'prune' or s.state == 'stopped'
  local until_ms = tonumber(t.beat_ms or 0) + await_ms
  if t.stop == 'stop' or not is_to_end or NOW >= until_ms then return false end
  redis.call('ZADD', key('leases'), int(math.min(until_ms, NOW + lease)), t.SID .. '/' .. t.N)
  return true
end

-- Ends trials that were lost before their sweep was stopped: no worker may claim them. Also ends trials
-- that a `hpq cancel` or `stop` that crashed has left.
local function end_rest_of_stopped(sid)
  local s, ended = read_sweep(sid), 0
  if not is_closed(s) then return 0 end
  sweeps().changing(s, function()
    for _, n in ipairs(redis.call('ZRANGEBYSCORE', sweep_key(sid, 'waiting'), '-inf', 0, 'LIMIT', 0, 100)) do
      local beat_ms = tonumber(redis.call('HGET', trial_key(sid, n), 'beat_ms') or 0)
      if NOW >= beat_ms + await_ms then
        ends().cancel_waiting(s, n)
        ended = ended + 1
      end
    end
    ended = ended + ends().cancel_all_waiting(s, s.state == 'stopped')
  end)
  return ended
end

local wanted, requeued, ended = {}, 0, 0  -- wanted: tickets by queue

local function answer()
  local flat = {}
  for name, missing in pairs(wanted) do flat[#flat + 1], flat[#flat + 2] = name, missing end
  return {'ok', requeued, ended, unpack(flat)}
end

local function reap(id, sid, n)
  local s = sid and read_sweep(sid)
  local t = s and s.queue and read_trial(sid, n, 'beat_ms', 'step')
  -- A malformed lease, or one of a removed sweep, must not keep other trials from being requeued.
  if not t or not t.attempt then
    redis.call('ZREM', key('leases'), id)
  elseif dead[id] or not awaits_worker(s, t) then
    redis.call('HINCRBY', key('counters'), 'leases_expired', 1)
    local want = sweeps().changing(s, function()
      leave_running(s, t, tonumber(t.beat_ms))
      if ends().end_if_stopped(s, t) then
        ended = ended + 1
      elseif poison(s, t) then
        ends().end_as_poison(s, t, 'its worker was lost ' .. lost_max .. ' times without progress')
        ended = ended + 1
      else
        requeue(s, t, 'lost', true, 'beat_ms', t.beat_ms or 0)
        save(t)
        requeued = requeued + 1
      end
    end)
    wanted[want[1]] = math.max(wanted[want[1]] or 0, want[2])
  end
  return true
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('leases'), '-inf', int(as_of), 'LIMIT', 0, 100)) do
  local sid, n = string.match(id, '^([^/]+)/(%d+)$')
  if not sweeps().guarded(sid or '', function() return reap(id, sid, n) end) then
    if redis.pcall('ZSCORE', sweep_key(sid or '', 'running'), n or '') then
      redis.call('ZADD', key('leases'), int(NOW + lease), id)  -- until its record is mended
    else
      redis.call('ZREM', key('leases'), id)  -- it was requeued or ended before the error
    end
  end
end

histories().make_room()

-- Every worker reaps expired leases and makes room. The rest reads each pending sweep, so one worker of the
-- queue does it in every_ms.
local stamp = 'booked:' .. queue
local done = tonumber(redis.call('HGET', key('queues'), stamp)) or 0
if done <= NOW and NOW - done < tonumber(args.every_ms) then return answer() end
redis.call('HSET', key('queues'), stamp, NOW_MS)
redis.call('HSET', key('server'), 'newest_ms', int(newest))

for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'pending'), 0, -1)) do  -- it may close some
  ended = ended + (sweeps().guarded(sid, function() return end_rest_of_stopped(sid) end) or 0)
end

local rooms_left = {}
wanted[queue] = booking().book(queue, rooms_left, tonumber(args.every_ms))
redis.call('ZREMRANGEBYSCORE', key('workers'), '-inf', int(NOW - 3600000))  -- silent for an hour
-- An owner whose trials end here may run more in a queue that has no worker, which would count it.
for _, other in ipairs(owners().exist() and owners().queues() or {}) do
  local booked = tonumber(redis.call('HGET', key('queues'), 'booked:' .. other)) or 0
  if NOW - booked > 2 * FRESH_MS then wanted[other] = booking().book(other, rooms_left, 0) end
end
return answer()
