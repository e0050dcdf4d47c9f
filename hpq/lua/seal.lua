-- Makes a sweep with all its rows visible and claimable, in one step.
-- KEYS prefix
-- ARGV sweep, digest, owner, again (1: even where the digest is there), then fields of the sweep
-- Replies: created class tickets | exists sweep

local sid, digest, owner, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local s = sweep_key(sid)
local rows = {sweep_key(sid, 'params'), sweep_key(sid, 'waiting'), sweep_key(sid, 'ids'),
  sweep_key(sid, 'origin')}
local class = redis.call('HGET', s, 'class')
if class then return {'created', class, tickets(sid, class)} end  -- the same call, sent twice

local other = redis.call('HGET', key('digests'), digest)
if other and again ~= '1' and redis.call('EXISTS', sweep_key(other)) == 1 then
  redis.call('DEL', unpack(rows))
  return {'exists', other}
end
redis.call('HSET', s, 'created_ms', int(NOW), 'flag', '', 'held', '')
redis.call('HSET', s, unpack(ARGV, 5))
class = redis.call('HGET', s, 'class')
for _, name in ipairs(rows) do redis.call('PERSIST', name) end
hold_code(sid)
redis.call('ZADD', key('sweeps'), int(NOW), sid)
redis.call('HSET', key('digests'), digest, sid)
redis.call('HSET', key('last'), owner, sid)
open(sid)
event(sid, 'created', 0, 0, 'count', redis.call('ZCARD', rows[2]), 'owner', owner)
set_demand(class, claimable(sid))
return {'created', class, tickets(sid, class)}
