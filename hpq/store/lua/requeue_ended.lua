-- Requeues trials in a terminal state, behind all others of the sweep. Their ends do not enter
-- the window of the circuit breaker: who asks for a retry knows that they failed. A stopped, cancelled or held
-- sweep resumes, and its target stops it no more; a paused one stays paused.
-- KEYS prefix
-- ARGV sweep, then numbers of trials
-- Replies: ok | unknown, then queue, tickets and how many were requeued

local sid = ARGV[1]
local s, dropped, ended = read_sweep(sid, 'replicates'), sweep_key(sid, 'dropped'), sweep_key(sid, 'ended')
if not s.queue then return {'unknown', '', 0, 0} end
local touched = 0

local function retry(n)
  if redis.call('ZREM', dropped, n) == 1 then
    redis.call('ZADD', sweep_key(sid, 'waiting'), n, n)
    sweep_event(sid, 'retried', n, 0)
    return 1
  end
  if redis.call('ZREM', ended, n) == 0 then return 0 end
  local t = read_trial(sid, n, 'kind', 'reused', 'unbegun')
  local is_complete = t.state == 'finished' or t.state == 'pruned' or t.kind == 'diverged'
  redis.call('HINCRBY', s.KEY, 'n_' .. t.state, -1)
  if t.kind == 'diverged' then redis.call('HINCRBY', s.KEY, 'n_diverged', -1) end
  rank(s, n)
  for _, field in ipairs(redis.call('HKEYS', t.KEY)) do
    if string.sub(field, 1, 2) == 'c:' then unset(t, field) end
  end
  add_attempt_time(t)
  if t.reused then add(t, 'unbegun', 1) end
  unset(t, 'restarted', 'reused', 'seed', 'avoid_ms', 'checkpoint_mark', 'lost', 'lost_step',
    'lost_hosts', 'failed_step', 'kind', 'error', 'fingerprint', 'objective', 'ended_ms', 'avoid', 'artifacts', 'stop',
    'pruning', 'overfilled', 'returns', 'best_value', 'usage', 'values', 'violations', 'infeasible')
  files().forget_unstored(sid, n)
  redis.call('SREM', sweep_key(sid, 'files'), n)
  -- From its checkpoint, a complete or diverged trial would only end the same way.
  if is_complete then unset(t, 'checkpoint', 'checkpoint_step') end
  if not t.checkpoint then points().rewind(t, 0, '') end
  set(t, 'state', 'queued')
  set(t, 'again', '1')
  event(t, 'retried')
  save(t)
  redis.call('ZADD', sweep_key(sid, 'waiting'), n - 2 * FRONT, n)
  return 1
end

local want = sweeps().changing(s, function()
  for i = 2, #ARGV do touched = touched + retry(ARGV[i]) end
  if touched == 0 then return end
  if s.state == 'held' or is_closed(s) then set(s, 'tail', '') end  -- a stop of a held sweep, too
  if s.state ~= 'paused' then set_state(s, 'open') end
  sweeps().open(s)
end)
return {'ok', want[1], want[2], touched}
