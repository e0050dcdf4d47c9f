-- A worker says that it is there.
-- KEYS prefix
-- ARGV worker, class, host, idle (1 or 0), lifetime in ms, then fields of the worker
-- Replies: ok, then the server's time in ms

local worker, class, host, idle, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
is_full()  -- goes on all the same
redis.call('ZADD', key('workers'), int(NOW), worker)
if idle == '1' and not is_drained(redis.call('HGET', key('w', worker), 'drain')) then
  redis.call('ZADD', key('c', class, 'idle'), int(NOW), worker)
else
  redis.call('ZREM', key('c', class, 'idle'), worker)
end
redis.call('HSET', key('w', worker), 'class', class, 'host', host, unpack(ARGV, 6))
redis.call('PEXPIRE', key('w', worker), ttl)
return {'ok', NOW}
