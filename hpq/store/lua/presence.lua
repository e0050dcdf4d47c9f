-- Publishes that a worker is alive, with the fields that describe it.
-- KEYS prefix
-- ARGV {worker, queue, host, idle, lifetime_ms}, then fields of the worker's hash
-- Replies: ok, the server's time in ms, then 1 if the record of what its attempts run on (ran_on) is gone:
--      `remove` drops it if the worker was silent for long

local args = cjson.decode(ARGV[1])
local worker, queue = args.worker, args.queue
local is_new = redis.call('ZADD', key('workers'), NOW_MS, worker) == 1
-- No worker has reaped for a while: what passed then must not hide that all fails now. A window without such
-- trials stays, or workers of one trial each would never hold a sweep.
if is_new and NOW - (tonumber(redis.call('HGET', key('queues'), 'booked:' .. queue)) or 0) > FRESH_MS then
  for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'open'), 0, -1)) do
    sweeps().guarded(sid, function()
      local tail = redis.call('HGET', sweep_key(sid), 'tail') or ''
      if string.find(tail, '\t+\n', 1, true) then redis.call('HSET', sweep_key(sid), 'tail', '') end
    end)
  end
end
redis.call('HSET', key('w', worker), 'queue', queue, 'host', args.host, unpack(ARGV, 2))
redis.call('PEXPIRE', key('w', worker), args.lifetime_ms)
local f = redis.call('HMGET', key('w', worker), 'drain', 'ran_on')
if args.idle and not f[1] then
  redis.call('ZADD', key('q', queue, 'idle'), NOW_MS, worker)
else
  redis.call('ZREM', key('q', queue, 'idle'), worker)
end
local ran_on = f[2] or ''
local is_lost = ran_on ~= '' and redis.call('HEXISTS', key('provenance'), ran_on) == 0
return {'ok', NOW, is_lost and 1 or 0}
