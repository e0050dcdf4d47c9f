-- Publishes that a worker is alive, with the fields that describe it.
-- KEYS prefix
-- ARGV {worker, worker_class, host, idle, lifetime_ms}, then fields of the worker's hash
-- Replies: ok, the server's time in ms, then 1 if the record of what its attempts run on (ran_on) is gone:
--      `remove` drops it if the worker was silent for long

local args = cjson.decode(ARGV[1])
local worker, class = args.worker, args.worker_class
is_full()  -- the writes below succeed on a full server
redis.call('ZADD', key('workers'), int(NOW), worker)
if args.idle and not is_drained(redis.call('HGET', key('w', worker), 'drain')) then
  redis.call('ZADD', key('c', class, 'idle'), int(NOW), worker)
else
  redis.call('ZREM', key('c', class, 'idle'), worker)
end
redis.call('HSET', key('w', worker), 'class', class, 'host', args.host, unpack(ARGV, 2))
redis.call('PEXPIRE', key('w', worker), args.lifetime_ms)
local ran_on = redis.call('HGET', key('w', worker), 'ran_on') or ''
local is_lost = ran_on ~= '' and redis.call('HEXISTS', key('provenance'), ran_on) == 0
return {'ok', NOW, is_lost and 1 or 0}
