-- The files of a removed sweep are about to go from a store, or have gone: meanwhile nobody restores
-- the sweep, and nothing goes of one that is there or is being restored.
-- KEYS prefix
-- ARGV sweep, ttl in s of the mark (0: take it down)
-- Replies: ok | stays

local sid, ttl = ARGV[1], tonumber(ARGV[2])
local mark, mine = sweep_key(sid, 'restoring'), 'clearing'
is_full()  -- goes on all the same
if ttl == 0 then
  if redis.call('HGET', mark, 'token') == mine then redis.call('DEL', mark) end
  return {'ok'}
end
if redis.call('EXISTS', sweep_key(sid)) == 1 then return {'stays'} end
redis.call('HSETNX', mark, 'token', mine)
if redis.call('HGET', mark, 'token') ~= mine then return {'stays'} end
redis.call('EXPIRE', mark, ttl)
return {'ok'}
