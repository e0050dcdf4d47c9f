-- Records the end of an attempt, once: of the latest attempt, while it runs, or after it was reaped
-- and before another worker claims the trial.
-- KEYS prefix
-- ARGV {sweep, number, attempt, nonce, outcome (finished failed
--      pruned cancelled), objective (optional), best (optional: of all that the attempt reported), step,
--      kind, error, fingerprint ('' in all three if it did not fail), retries, progress, elsewhere,
--      evidence (the rule of hpq/domain/retry_policy.py for this failure), keep_log_bytes, ran_ms
--      (optional), artifacts (JSON, '' for none)}
-- Replies: done | requeued | suspect (requeued uncharged: only this worker fails like this) | already |
--      stale | unknown, then queue and tickets

local args = cjson.decode(ARGV[1])
local sid, n, attempt, outcome = args.sweep, args.number, args.attempt, args.outcome
local objective, best, step = args.objective or '', args.best or '', tonumber(args.step)
local kind, artifacts = args.kind, args.artifacts
local s, t = sweep_key(sid), trial_key(sid, n)

-- Before any write: a result is recorded whole or not at all.
local function finite(field, text)
  local x = tonumber(text)
  if x and x == x and math.abs(x) < math.huge then return end
  error(field .. ' of a commit is no finite number: ' .. string.sub(text, 1, 40))
end
finite('step', args.step)
finite('retries', args.retries)
finite('keep_log_bytes', args.keep_log_bytes)
if args.objective then finite('objective', args.objective) end
if args.best then finite('best', args.best) end
if args.ran_ms then finite('ran_ms', args.ran_ms) end
if artifacts ~= '' then store_of(artifacts) end

if is_full() then free_memory(65536) end  -- a result is recorded in any case
local f = redis.call('HMGET', t, 'state', 'attempt', 'reaped', 'closed', 'claimed_ms', 'host', 'failed_step',
  'stop', 'worker', 'nonce', 'again')
if not f[1] or not sweep_exists(sid) then
  return {redis.call('ZSCORE', key('removed'), sid) and 'stale' or 'unknown', '', 0}
end
if f[2] ~= attempt or is_other_claim(f[10], args.nonce) then
  count('stale_commits')
  return {'stale', '', 0}
end
if f[4] == attempt or not (f[1] == 'running' or (f[1] == 'queued' and f[3] == attempt)) then
  return {'already', '', 0}
end

-- Measured by the worker, since the server's clock also counts an outage of Redis.
local ran = args.ran_ms or int(NOW - tonumber(f[5]))

-- True if the sweep or the trial was stopped: no failure is retried.
local function is_to_end()
  local flag = redis.call('HGET', s, 'flag')
  return flag == 'stopped' or flag == 'cancelled' or f[8]
end

-- True if this failure is retried. A charged one counts against the rule's retries and the sweep's.
local function is_retried()
  if outcome ~= 'failed' or args.evidence == 'tampering' or is_to_end() then return false end
  if args.progress then
    -- The first such failure has none to compare with, so it is charged.
    local furthest = tonumber(f[7])
    redis.call('HSET', t, 'failed_step', int(math.max(step, furthest or 0)))
    if furthest and step > furthest then return true end
  end
  local allowed = tonumber(args.retries) + (tonumber(redis.call('HGET', s, 'retries')) or 0)
  return redis.call('HINCRBY', t, 'c:' .. kind, 1) <= allowed
end

local worker, mark = f[9] or '', mark_of(outcome, kind, args.fingerprint, args.evidence)

-- If only this worker fails like this, the trial is requeued for others: the worker may be at fault.
local function is_suspect(last, in_a_row)
  local _, others, passed = compare(last, worker, mark)
  if mark == '+' or mark == '-' or args.evidence == 'tampering' or not is_alone(others, passed, in_a_row) then return false end
  return f[1] == 'running' and not is_to_end() and has_peer(sid, worker)
end

keep_log(sid, n, tonumber(args.keep_log_bytes))  -- before the trial ends: then it is weighed
local reply = 'done'
local want = changing(sid, function()
  local last, in_a_row = tail(sid, worker, mark, f[11]), streak(sid, worker, mark)
  if is_suspect(last, in_a_row) then
    reply = 'suspect'
    if redis.call('EXISTS', key('w', worker)) == 1 then
      redis.call('HSETNX', key('w', worker), 'suspect_ms', int(NOW))
    end
    requeue(sid, n, attempt, 'worker_fault', false)
    redis.call('HSET', t, 'avoid', f[6] or '', 'avoid_ms', int(NOW), 'ran_ms', ran)
    return
  end
  if is_retried() then
    reply = 'requeued'
    if f[1] == 'queued' then event(sid, 'resumed', n, attempt) end  -- reaped, and then it failed
    requeue(sid, n, attempt, kind, false)
    redis.call('HSET', t, 'avoid', args.elsewhere and f[6] or '', 'avoid_ms', int(NOW), 'ran_ms', ran)
    return
  end
  local fields = {'objective', objective, 'step', step}
  if best ~= '' and (redis.call('HGET', s, 'sampler') or '') ~= '' then
    fields[5], fields[6] = 'best', best
  end
  for _, pair in ipairs({{'kind', kind}, {'error', args.error}, {'fingerprint', args.fingerprint}}) do
    if pair[2] ~= '' then fields[#fields + 1] = pair[1]; fields[#fields + 1] = pair[2] end
  end
  if artifacts ~= '' then
    add_store(sid, artifacts)
    redis.call('HSET', t, 'artifacts', artifacts)
  end
  finish(sid, n, attempt, outcome, unpack(fields))
  redis.call('HSET', t, 'ran_ms', ran, 'best_value', best)
  redis.call('HDEL', t, 'phase', 'resumes')
  if kind == 'diverged' then redis.call('HINCRBY', s, 'n_diverged', 1) end
  if objective ~= '' and (outcome == 'finished' or outcome == 'pruned') then
    rank(sid, n, objective)
  end
  if outcome == 'finished' or outcome == 'pruned' then
    redis.call('HINCRBY', s, 'dur_n', 1)
    redis.call('HINCRBYFLOAT', s, 'dur_sum', ran)
    redis.call('HINCRBYFLOAT', s, 'dur_sq', int(ran * ran))
  end
  local halt = f[11] and end_retry or hold
  if kind == 'unreported' and not f[11] then hold_if_unreported(sid, n, attempt, args.error) end
  if args.evidence == 'code' and outcome == 'failed' then breaker(sid, n, attempt, worker, last, halt) end
  if args.evidence == 'tampering' then halt_if_tampered(sid, n, attempt, last, halt) end
  release_files(sid, n, outcome == 'finished' or outcome == 'pruned' or kind == 'diverged')
end)
if reply == 'done' and objective ~= '' and (outcome == 'finished' or outcome == 'pruned') then
  local rule = read_rule(sid)  -- a result from a worker's disk arrives without its reports
  if rule then stop_at_target(sid, n, attempt, rule, objective) end
end
return {reply, want[1], want[2]}
