-- Makes a sweep with all its rows visible and claimable, in one step. Trials with a staged result of an
-- older sweep are finished at once.
-- KEYS prefix
-- ARGV {sweep, digest, owner, again (also if a sweep of this digest exists), manifest (JSON of its code; ''
--      for none)}, then fields of the sweep's hash
-- Replies: created queue tickets | exists sweep

local args = cjson.decode(ARGV[1])
local sid, digest, owner = args.sweep, args.digest, args.owner
local s = sweep_key(sid)
local rows = {sweep_key(sid, 'params'), sweep_key(sid, 'waiting'), sweep_key(sid, 'ids'),
  sweep_key(sid, 'origin')}
local staged = sweep_key(sid, 'staged')
local queue = redis.call('HGET', s, 'queue')
if queue then return {'created', queue, tickets(sid, queue)} end  -- the same call, sent twice

local other = redis.call('HGET', key('digests'), digest)
if other and not args.again and redis.call('EXISTS', sweep_key(other)) == 1 then
  redis.call('DEL', staged, unpack(rows))
  return {'exists', other}
end
redis.call('HSET', s, 'created_ms', int(NOW), 'flag', '', 'held', '')
redis.call('HSET', s, unpack(ARGV, 2))
queue = redis.call('HGET', s, 'queue')
for _, name in ipairs(rows) do redis.call('PERSIST', name) end
hold_code(sid)
-- In this call: a removal of the last sweep with the same code would delete an earlier write.
if args.manifest ~= '' then
  redis.call('HSETNX', key('code'), redis.call('HGET', s, 'bundle'), args.manifest)
end
redis.call('ZADD', key('sweeps'), int(NOW), sid)
redis.call('HSET', key('digests'), digest, sid)
redis.call('HSET', key('last'), owner, sid)
event(sid, 'created', 0, 0, 'count', redis.call('ZCARD', rows[2]), 'owner', owner)

local is_ranked = redis.call('HGET', s, 'goal') ~= ''
local function reuse_result(n, result)
  redis.call('ZREM', rows[2], n)
  redis.call('HSET', trial_key(sid, n), 'state', 'finished', 'attempt', 1, 'closed', 1, 'ended_ms', int(NOW),
    'objective', result.objective, 'step', result.step, 'reused', result.from, unpack(result.metrics))
  if (result.seed or '') ~= '' then redis.call('HSET', trial_key(sid, n), 'seed', result.seed) end
  -- The record may have been dropped since the producer read it.
  local ran_on = result.provenance or ''
  if redis.call('HEXISTS', key('provenance'), ran_on) == 0 then ran_on = '' end
  hold_ran_on(sid, ran_on)
  redis.call('HSET', trial_key(sid, n), 'provenance', ran_on)
  redis.call('ZADD', sweep_key(sid, 'ended'), int(NOW), n)
  if is_ranked and result.objective ~= '' then rank(sid, n, result.objective) end
  event(sid, 'reused', n, 1, 'from', result.from, 'objective', result.objective,
    'provenance', ran_on)
end

local results, count = redis.call('HGETALL', staged), 0
for i = 1, #results, 2 do
  reuse_result(results[i], cjson.decode(results[i + 1]))
  count = count + 1
end
redis.call('DEL', staged)
if count > 0 then redis.call('HINCRBY', s, 'n_finished', count) end
if not is_done(sid) then open(sid) end
bound_code()
set_demand(queue, claimable(sid))
local rule = count > 0 and read_rule(sid)
for i = 1, rule and #results or 0, 2 do
  stop_at_target(sid, results[i], 1, rule, cjson.decode(results[i + 1]).objective)
end
return {'created', queue, tickets(sid, queue)}
