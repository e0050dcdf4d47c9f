-- Writes rows of a sweep that is not yet visible; sending the same rows again changes nothing.
-- The rows expire unless `create` follows.
-- KEYS prefix
-- ARGV sweep, ttl in s (0 for a created sweep), number of the first row, then params and identity of
--      each row
-- Replies: ok

local sid, ttl, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local params, waiting, ids = sweep_key(sid, 'params'), sweep_key(sid, 'waiting'), sweep_key(sid, 'ids')
for i = 4, #ARGV, 2 do
  if redis.call('HSETNX', params, n, ARGV[i]) == 1 then
    redis.call('ZADD', waiting, n, n)
    redis.call('SADD', ids, ARGV[i + 1])
  end
  n = n + 1
end
if ttl > 0 then
  for _, name in ipairs({params, waiting, ids}) do redis.call('EXPIRE', name, ttl) end
end
return {'ok'}
