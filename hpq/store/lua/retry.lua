-- Requeues trials in a terminal state, behind all others of the sweep, and begins a window for them
-- (lib/guards.lua). A stopped, cancelled or held sweep resumes; a paused one stays paused.
-- KEYS prefix
-- ARGV sweep, then numbers of trials
-- Replies: ok | unknown, then queue, tickets and how many were requeued

local sid = ARGV[1]
local s, dropped, ended = sweep_key(sid), sweep_key(sid, 'dropped'), sweep_key(sid, 'ended')
if redis.call('EXISTS', s) == 0 then return {'unknown', '', 0, 0} end
local touched = 0

local function retry(n)
  local t = trial_key(sid, n)
  if redis.call('ZREM', dropped, n) == 1 then
    redis.call('ZADD', sweep_key(sid, 'waiting'), n, n)
    return 0
  end
  if redis.call('ZREM', ended, n) == 0 then return end
  local f = redis.call('HMGET', t, 'state', 'kind', 'attempt', 'error', 'fingerprint')
  redis.call('HINCRBY', s, 'n_' .. f[1], -1)
  if f[2] == 'diverged' then redis.call('HINCRBY', s, 'n_diverged', -1) end
  rank(sid, n)
  record_bytes(sid, n)
  for _, field in ipairs(redis.call('HKEYS', t)) do
    if string.sub(field, 1, 2) == 'c:' then redis.call('HDEL', t, field) end
  end
  add_attempt_time(t)
  if redis.call('HEXISTS', t, 'reused') == 1 then redis.call('HINCRBY', t, 'unbegun', 1) end
  redis.call('HDEL', t, 'restarted', 'reused', 'seed', 'avoid_ms', 'checkpoint_mark', 'lost', 'lost_step',
    'lost_hosts', 'failed_step', 'kind', 'error', 'fingerprint', 'objective', 'ended_ms', 'avoid', 'artifacts', 'stop',
    'pruning', 'best_value', 'not_run')
  redis.call('SREM', sweep_key(sid, 'files'), n)
  -- From its checkpoint, a complete or diverged trial would only end the same way.
  if f[1] == 'finished' or f[1] == 'pruned' or f[2] == 'diverged' then drop_checkpoint(sid, n) end
  if redis.call('HEXISTS', t, 'checkpoint') == 0 then rewind(sid, n, 0, '') end
  -- Its failure stays under other names: the end of the retry may return the trial to `failed`.
  redis.call('HSET', t, 'state', 'queued', 'again', f[2] or '', 'again_error', f[4] or '',
    'again_fingerprint', f[5] or '')
  redis.call('ZADD', sweep_key(sid, 'waiting'), n - 2 * FRONT, n)
  return f[3]
end

local want = changing(sid, function()
  for i = 2, #ARGV do
    local attempt = retry(ARGV[i])
    if attempt then
      event(sid, 'retried', ARGV[i], attempt)
      touched = touched + 1
    end
  end
  if touched == 0 then return end
  local f = redis.call('HMGET', s, 'flag', 'held')
  if (f[2] or '') ~= '' then redis.call('HSET', s, 'tail', '') end  -- the sweep resumes
  redis.call('HSET', s, 'held', '', 'tail_again', '', 'retry_ended', '', 'reached', '')
  if f[1] ~= 'paused' then redis.call('HSET', s, 'flag', '') end
  open(sid)
end)
return {'ok', want[1], want[2], touched}
