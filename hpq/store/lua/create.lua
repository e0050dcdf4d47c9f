-- Makes a sweep with all its rows visible and claimable, in one step. Trials with a staged result of an
-- older sweep are finished at once.
-- KEYS prefix
-- ARGV {sweep, digest, owner, again (also if a sweep of this digest exists), last (it becomes its owner's last
--      sweep), manifest (JSON of its code; '' for none)}, then fields of the sweep's hash
-- Replies: created queue tickets | exists sweep

local args = cjson.decode(ARGV[1])
local sid, digest, owner = args.sweep, args.digest, args.owner
local name, staged = sweep_key(sid), sweep_key(sid, 'staged')
local rows = {sweep_key(sid, 'params'), sweep_key(sid, 'waiting'), sweep_key(sid, 'ids'),
  sweep_key(sid, 'origin')}
local s = read_sweep(sid)
if s.queue then return {'created', s.queue, tickets(s)} end  -- the same call, sent twice

local other = redis.call('HGET', key('digests'), digest)
if other and not args.again and redis.call('EXISTS', sweep_key(other)) == 1 then
  redis.call('DEL', staged, unpack(rows))
  return {'exists', other}
end
redis.call('HSET', name, 'created_ms', NOW_MS, 'state', 'open', 'why', '')
redis.call('HSET', name, unpack(ARGV, 2))
for _, row in ipairs(rows) do redis.call('PERSIST', row) end
sharing().hold_code(sid)
-- In this call: a removal of the last sweep with the same code would delete an earlier write.
if args.manifest ~= '' then
  redis.call('HSETNX', key('code'), redis.call('HGET', name, 'bundle'), args.manifest)
end
redis.call('ZADD', key('sweeps'), NOW_MS, sid)
redis.call('HSET', key('digests'), digest, sid)
if args.last then redis.call('HSET', key('last'), owner, sid) end
sweep_event(sid, 'created', 0, 0, 'count', redis.call('ZCARD', rows[2]), 'owner', owner)

s = read_sweep(sid, 'metric', 'metric_order', 'early', 'goal', 'replicates', 'constraints', 'priority')
local function reuse_result(n, result)
  local t = read_trial(sid, n)
  -- The record may have been dropped since the producer read it.
  local ran_on = result.provenance or ''
  if redis.call('HEXISTS', key('provenance'), ran_on) == 0 then ran_on = '' end
  sharing().hold_ran_on(sid, ran_on)
  s.WAITING = s.WAITING - redis.call('ZREM', rows[2], n)
  add(t, 'attempt', 1)
  save(t, 'state', 'finished', 'closed', 1, 'ended_ms', NOW_MS, 'objective', result.objective,
    'step', result.step, 'reused', result.from, 'provenance', ran_on, unpack(result.metrics))
  if is_set(result.seed) then set(t, 'seed', result.seed) end
  reports().take_metric_order(s, result.metric_order)
  if is_set(result.run_info) then reports().take_run_info(s, t, result.run_info) end
  redis.call('ZADD', sweep_key(sid, 'ended'), NOW_MS, n)
  redis.call('HINCRBY', name, 'n_finished', 1)
  if is_set(s.goal) and result.objective ~= '' and not result.infeasible then rank(s, n, result.objective) end
  event(t, 'reused', 'from', result.from, 'objective', result.objective, 'provenance', ran_on,
    unpack(result.scores))
  return t
end

local rule, results, reused = read_rule(s), redis.call('HGETALL', staged), {}
for i = 1, #results, 2 do reused[i] = reuse_result(results[i], cjson.decode(results[i + 1])) end
redis.call('DEL', staged)
if not is_done(s) then sweeps().open(s) end
sharing().bound_code()
update_queue(s, 0)  -- if nothing fits its budget, no worker starts that would hold it
for i = 1, #results, 2 do
  local result = cjson.decode(results[i + 1])
  if rule and not result.infeasible then early_termination().stop_at_target(s, reused[i], rule, result.objective) end
  save(reused[i])
end
save(s)
return {'created', s.queue, tickets(s)}
