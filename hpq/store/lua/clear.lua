-- Locks a removed sweep while a worker removes its files from a store: no archive restores the sweep
-- meanwhile. A sweep that exists, or that is being restored, keeps its files.
-- KEYS prefix
-- ARGV sweep, ttl of the lock in s (0: unlock)
-- Replies: ok | stays

local sid, ttl = ARGV[1], tonumber(ARGV[2])
local lock, token = sweep_key(sid, 'restoring'), 'clearing'
is_full()  -- the writes below succeed on a full server
if ttl == 0 then
  if redis.call('HGET', lock, 'token') == token then redis.call('DEL', lock) end
  return {'ok'}
end
if redis.call('EXISTS', sweep_key(sid)) == 1 then return {'stays'} end
redis.call('HSETNX', lock, 'token', token)
if redis.call('HGET', lock, 'token') ~= token then return {'stays'} end
redis.call('EXPIRE', lock, ttl)
return {'ok'}
