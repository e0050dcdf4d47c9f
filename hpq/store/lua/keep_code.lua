-- Stores a code bundle under its digest. The bundle expires unless `create` or `finish_restore`
-- names a sweep that has it.
-- KEYS prefix
-- ARGV digest, ttl in s, bundle
-- Replies: ok

local digest, ttl = ARGV[1], tonumber(ARGV[2])
local bundle = key('b', digest)
redis.call('SET', bundle, ARGV[3])
if redis.call('SCARD', key('b', digest, 'sweeps')) == 0 then redis.call('EXPIRE', bundle, ttl) end
return {'ok'}
