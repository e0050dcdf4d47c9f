-- Keeps a sweep's code under its digest, until `seal` or `reveal` says which sweep has it; it expires
-- where none does.
-- KEYS prefix
-- ARGV digest, ttl in s, the bundle
-- Replies: ok

local digest, ttl = ARGV[1], tonumber(ARGV[2])
local bundle = key('b', digest)
redis.call('SET', bundle, ARGV[3])
if redis.call('SCARD', key('b', digest, 'sweeps')) == 0 then redis.call('EXPIRE', bundle, ttl) end
return {'ok'}
