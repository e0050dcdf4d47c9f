-- Heartbeat of a running attempt: extends the lease and records what was reported and printed since.
-- A batch whose sequence number was recorded before only extends the lease.
-- A server at its maxmemory still records the lease, the step and the last values; it drops printed
-- bytes and points if it cannot free memory for them.
-- KEYS prefix
-- ARGV {sweep, number, attempt, nonce, worker, lease_ms, seq, step,
--      objective (so far; '' for none), phase, checkpoint (JSON of the one that was published since;
--      '' for none), checkpoint_step, restarted (why the training starts again without a checkpoint;
--      '' if it does not), run_info (JSON of what the script set beside numbers, if that changed)},
--      printed bytes, then step, metric and value of each point
-- Replies: ok | stop | prune | lost | unknown

local args, log = cjson.decode(ARGV[1]), ARGV[2]
local sid, n, attempt, worker = args.sweep, args.number, args.attempt, args.worker
local lease, seq = tonumber(args.lease_ms), tonumber(args.seq)
local t = trial_key(sid, n)
local LOG_BYTES, BULK = 1048576, 65536  -- BULK: memory for a batch, and more

-- Drops the oldest entries of the log until the rest fits.
local function bound_log(bytes)
  local log, size = trial_key(sid, n, 'log'), tonumber(redis.call('HGET', t, 'log_bytes') or 0)
  while size > bytes do
    local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    redis.call('XDEL', log, oldest[1])
    size = size - #oldest[2][2]
  end
  redis.call('HSET', t, 'log_bytes', size)
end

local full = is_full()
local f = redis.call('HMGET', t, 'state', 'attempt', 'reaped', 'seq', 'stop', 'resumes',
  'closed', 'nonce')
if not f[1] or not sweep_exists(sid) then return {'unknown'} end  -- removed, or the server lost its data
local alive = f[2] == attempt and f[7] ~= attempt and (f[1] == 'running' or (f[1] == 'queued' and f[3] == attempt))
if not alive or is_other_claim(f[8], args.nonce) then return {'lost'} end

if f[1] == 'queued' then  -- reaped, but no worker has claimed it since: its hours are saved
  changing(sid, function()
    redis.call('ZREM', sweep_key(sid, 'waiting'), n)
    redis.call('ZADD', sweep_key(sid, 'running'), int(NOW), n)
    count_busy(sid, 1)
  end)
  redis.call('HSET', t, 'state', 'running')
  redis.call('HDEL', t, 'reaped')
  event(sid, 'resumed', n, attempt, 'worker', worker)
end
redis.call('ZADD', key('leases'), int(NOW + lease), sid .. '/' .. n)
redis.call('ZADD', key('workers'), int(NOW), worker)
redis.call('PEXPIRE', key('w', worker), 3 * lease)
redis.call('HSET', t, 'beat_ms', int(NOW))
local rule = read_rule(sid)
local function answer()
  if rule then judge_again(sid, n, attempt, rule) end
  return {redis.call('HGET', t, 'stop') or 'ok'}
end
if seq <= tonumber(f[4] or 0) then return answer() end

if full and (log ~= '' or #ARGV > 2 or args.run_info) then
  full = free_memory(BULK) < BULK
  if full then count('reports_dropped') end
end
redis.call('HSET', t, 'seq', args.seq, 'step', args.step, 'objective', args.objective,
  'phase', args.phase)
if args.run_info and not full then redis.call('HSET', t, 'run_info', args.run_info) end
if log ~= '' and not full then
  redis.call('XADD', trial_key(sid, n, 'log'), '*', 'd', log)
  redis.call('HINCRBY', t, 'log_bytes', #log)
  bound_log(LOG_BYTES)
end
if args.restarted ~= '' then
  forget_points(sid, n)
  redis.call('HDEL', t, 'resumes')
  -- The old checkpoint stays until this attempt publishes one: the next worker may have its store, and
  -- resume from it.
  redis.call('HSET', t, 'restarted', args.restarted)
  event(sid, 'restarted', n, attempt, 'why', args.restarted)
  f[6] = false
end
if args.checkpoint ~= '' then
  -- Progress resets the count of lost workers: a checkpoint at a later step than all before. Without
  -- steps it is the second checkpoint of an attempt, as the first may be saved before training.
  add_store(sid, args.checkpoint)
  local nth = redis.call('HINCRBY', t, 'checkpoints', 1)
  local furthest, at = tonumber(redis.call('HGET', t, 'checkpoint_mark') or 0), tonumber(args.checkpoint_step)
  if at > furthest then redis.call('HSET', t, 'checkpoint_mark', int(at)) end
  if at > furthest or (nth == 2 and args.step == '0' and at == 0) then
    redis.call('HDEL', t, 'lost', 'lost_hosts', 'c:killed')
  end
  redis.call('HSET', t, 'checkpoint', args.checkpoint, 'checkpoint_step', args.checkpoint_step)
end

-- Removes the points that an earlier attempt reported from this step on, at the first value that this
-- attempt reports of a metric. `resumes` lists the metrics that are done.
local function cut(metric, points, step)
  if string.find(f[6], '\n' .. metric .. '\n', 1, true) then return end
  f[6] = f[6] .. metric .. '\n'
  redis.call('HSET', t, 'resumes', f[6])
  local newest = redis.call('XREVRANGE', points, '+', '-', 'COUNT', 1)[1]
  while newest and tonumber(newest[2][2]) >= step do
    redis.call('XDEL', points, newest[1])
    newest = redis.call('XREVRANGE', points, '+', '-', 'COUNT', 1)[1]
  end
end

for i = 3, #ARGV, 3 do
  local points = trial_key(sid, n, 'p', ARGV[i + 1])
  if f[6] then cut(ARGV[i + 1], points, tonumber(ARGV[i])) end
  redis.call('HSET', t, 'm:' .. ARGV[i + 1], ARGV[i + 2])
  if not full then add_point(points, ARGV[i], ARGV[i + 2]) end
  if rule and ARGV[i + 1] == rule.metric then log_value(sid, n, attempt, rule, ARGV[i], ARGV[i + 2]) end
end
return answer()
