-- Stages results of older sweeps for `create`, which applies all of them in one step; sending the same again
-- changes nothing. They expire unless `create` follows.
-- KEYS prefix
-- ARGV sweep, ttl in s, then the number of each trial and its result
-- Replies: ok

local name = sweep_key(ARGV[1], 'staged')
redis.call('HSET', name, unpack(ARGV, 3))
redis.call('EXPIRE', name, ARGV[2])
return {'ok'}
