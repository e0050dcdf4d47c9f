-- Stages rows for a script that applies all of them in one step; sending the same rows again changes
-- nothing. The rows expire unless that script follows.
-- KEYS prefix
-- ARGV sweep or stage, ttl in s, then field and value of each row
-- Replies: ok

local name = sweep_key(ARGV[1], 'staged')
redis.call('HSET', name, unpack(ARGV, 3))
redis.call('EXPIRE', name, ARGV[2])
return {'ok'}
