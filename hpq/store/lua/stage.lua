-- Writes rows where nobody looks, for a script that takes all of them in one step; sending the same rows
-- again changes nothing. They expire unless that script comes.
-- KEYS prefix
-- ARGV sweep or stage, ttl in s, then field and value of each row
-- Replies: ok

local name = sweep_key(ARGV[1], 'staged')
redis.call('HSET', name, unpack(ARGV, 3))
redis.call('EXPIRE', name, ARGV[2])
return {'ok'}
