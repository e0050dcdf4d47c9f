-- Heartbeat of a running attempt: extends the lease and records what was reported and printed since.
-- A batch whose sequence number was recorded before only extends the lease.
-- A full server still records the lease, and drops the rest (lib/reports.lua).
-- KEYS prefix
-- ARGV {sweep, number, attempt, nonce, worker, lease_ms, seq, step,
--      objective (so far, if any), phase, checkpoint (JSON of the one that was published since, if
--      any), checkpoint_step, restarted (why the training starts again, if it does), kept_step (of the
--      checkpoint that it starts from, if any), run_info (JSON of what the script set beside numbers, if
--      that changed), metric_order (the metrics as they were first reported, a line each, if one is
--      new), curve_points (that a metric keeps, of a trial with many metrics), unkept (why files are in no
--      store; '' once they are; if that changed), usage (of the machine over time, if that changed)},
--      printed bytes, then step, metric and value of each point
-- Replies: ok | stop | prune | lost | unknown

local args = cjson.decode(ARGV[1])
local sid, n, attempt, worker, lease = args.sweep, args.number, args.attempt, args.worker, tonumber(args.lease_ms)

local s, t = read_sweep(sid, 'metric', 'metric_order', 'early', 'constraints'), read_trial(sid, n)
if not t.state or not s.queue then return {'unknown'} end  -- removed, or the server lost its data
local alive = t.attempt == attempt and t.closed ~= attempt
  and (t.state == 'running' or (t.state == 'queued' and t.reaped == attempt))
if not alive or is_other_claim(t, args.nonce) then return {'lost'} end

local before = demand(s)
if t.state == 'queued' then  -- reaped, but no worker has claimed it since: its hours are saved
  enter_again(s, t)
  set(t, 'state', 'running')
  unset(t, 'reaped')
  event(t, 'resumed', 'worker', worker)
end
update_queue(s, before)
redis.call('ZADD', key('leases'), int(NOW + lease), sid .. '/' .. n)
redis.call('ZADD', key('workers'), NOW_MS, worker)
redis.call('PEXPIRE', key('w', worker), 3 * lease)
set(t, 'beat_ms', NOW_MS)
if t.charged_ms then owners().charge(s, t, NOW) end
local rule = read_rule(s)
if reports().is_new(t, args) then
  set(t, 'seq', args.seq)
  set(t, 'step', args.step)
  set(t, 'objective', args.objective or '')
  set(t, 'phase', args.phase or '')
  reports().take_batch(s, t, args, rule, FULL)
  reports().add_log(t, FULL)
  reports().add_points(t, args, FULL)
end
if rule then early_termination().judge_again(t, rule) end
save(s)
save(t)
return {(t.stop == 'stop' or t.stop == 'prune') and t.stop or 'ok'}
