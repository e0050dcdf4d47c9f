-- Writes rows of an archived sweep that is not yet visible; sending the same rows again changes nothing.
-- The rows expire unless `finish_restore` follows.
-- KEYS prefix
-- ARGV {sweep, token (of this restore), ttl_s, trial (its number; 0 for the sweep's own), part, kind (hash
--      zset set stream), first (the key begins with these rows)}, then the items: field and value,
--      score and member, member, or id, count and that many fields and values
-- Replies: ok | exists | taken (also while a removal is not done)

local args = cjson.decode(ARGV[1])
local sid, token, ttl, n, part = args.sweep, args.token, tonumber(args.ttl_s), args.trial, args.part
local items, lock = {unpack(ARGV, 2)}, sweep_key(sid, 'restoring')
if redis.call('EXISTS', sweep_key(sid)) == 1 then return {'exists'} end
if redis.call('SISMEMBER', key('removing'), sid) == 1 then return {'taken'} end
redis.call('SET', lock, token, 'NX')
if redis.call('GET', lock) ~= token then return {'taken'} end
redis.call('EXPIRE', lock, ttl)

local name = n == '0' and sweep_key(sid, part) or trial_key(sid, n, part ~= '' and part or nil)
if args.first then redis.call('DEL', name) end

local function before(a, b)
  local a1, a2 = string.match(a, '^(%d+)-(%d+)$')
  local b1, b2 = string.match(b, '^(%d+)-(%d+)$')
  a1, a2, b1, b2 = tonumber(a1), tonumber(a2), tonumber(b1), tonumber(b2)
  return a1 < b1 or (a1 == b1 and a2 < b2)
end

local function append()
  local last = redis.call('XREVRANGE', name, '+', '-', 'COUNT', 1)[1]
  if last and not before(last[1], items[1]) then return end  -- the same rows, sent twice
  local i = 1
  while i <= #items do
    local count = tonumber(items[i + 1])
    redis.call('XADD', name, items[i], unpack(items, i + 2, i + 1 + count))
    i = i + 2 + count
  end
end

if args.kind == 'stream' then
  append()
else
  local command = {hash = 'HSET', zset = 'ZADD', set = 'SADD'}
  redis.call(command[args.kind], name, unpack(items))
end
redis.call('EXPIRE', name, ttl)
return {'ok'}
