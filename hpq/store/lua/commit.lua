-- Records the end of an attempt, once, with the last reports: of the latest attempt, while it runs, or
-- after it was reaped and before another worker claims the trial.
-- KEYS prefix
-- ARGV {sweep, number, attempt, nonce, outcome (finished failed
--      pruned cancelled), objective (optional), best (optional: of all that the attempt reported), values (of
--      several objectives), violations (of constraints), infeasible (if it does not meet them), step,
--      kind, error, fingerprint, retries, progress, elsewhere, evidence (of a failure, with its rule of
--      hpq/domain/retry_policy.py), keep_log_bytes, ran_ms (optional), artifacts (JSON, if any), unstored
--      (JSON of where files wait for their store, if they do), usage
--      (what it used of its machine; optional), last (the last batch, as `beat` gets it; optional)},
--      then that batch's printed bytes, and step, metric and value of each point
-- Replies: done | requeued | suspect (requeued uncharged: only this worker fails like this) | already |
--      stale | unknown (or unreadable), then queue and tickets

local args = cjson.decode(ARGV[1])
local sid, n, attempt, outcome = args.sweep, args.number, args.attempt, args.outcome
local objective, best, step = args.objective or '', args.best or '', tonumber(args.step)
local kind, error_text, fingerprint = args.kind or '', args.error or '', args.fingerprint or ''
local artifacts, unstored = args.artifacts or '', args.unstored or ''
local is_complete = outcome == 'finished' or outcome == 'pruned'

-- Before any write: a result is recorded whole or not at all.
for _, field in ipairs({'step', 'retries', 'keep_log_bytes', 'objective', 'best', 'ran_ms'}) do
  local x = tonumber(args[field] or 0)
  if not x or x ~= x or math.abs(x) == math.huge then
    error(field .. ' of a commit is no finite number: ' .. string.sub(args[field], 1, 40))
  end
end
if artifacts ~= '' then files().store_of(artifacts) end
if unstored ~= '' then files().store_of(unstored) end

-- Decides whether a failed trial is requeued: returns the reply, the reason, and the host that its next
-- attempt avoids; nil if it ends.
local function decide_retry(s, t, mark, tail, in_a_row)
  if args.evidence == 'tampering' or is_closed(s) or t.stop then return nil end

  -- If only this worker fails like this, the trial is requeued for others: the worker may be at fault.
  local worker = t.worker or ''
  local _, others, passed = circuit_breaker().compare(circuit_breaker().ends_in(tail), worker, mark)
  if mark ~= '-' and t.state == 'running' and circuit_breaker().is_alone(others, passed, in_a_row)
    and circuit_breaker().has_peer(s, worker) then
    if redis.call('EXISTS', key('w', worker)) == 1 then
      redis.call('HSETNX', key('w', worker), 'suspect_ms', NOW_MS)
    end
    return 'suspect', 'worker_fault', t.host or ''
  end

  -- A charged failure counts against the rule's retries and the sweep's. The first one with progress has
  -- none to compare with, so it is charged.
  local charges = 'c:' .. kind
  also(s, 'retries')
  also(t, 'failed_step', charges)
  local furthest, is_free = tonumber(t.failed_step), false
  if args.progress then
    set(t, 'failed_step', int(math.max(step, furthest or 0)))
    is_free = furthest ~= nil and step > furthest
  end
  if not is_free then add(t, charges, 1) end
  if is_free or tonumber(t[charges]) <= tonumber(args.retries or 0) + (tonumber(s.retries) or 0) then
    return 'requeued', kind, args.elsewhere and t.host or ''
  end
  return nil
end

-- True if the lease of this attempt was reaped, and no worker has claimed its trial since.
local function is_reaped(t) return t.state == 'queued' and t.reaped == attempt end

-- Returns the reply to an end that is not to be recorded; nil if it is.
local function refusal(s, t)
  if not t.state or not s.queue then
    return redis.call('ZSCORE', key('removed'), sid) and 'stale' or 'unknown'
  end
  if t.attempt ~= attempt or is_other_claim(t, args.nonce) then
    redis.call('HINCRBY', key('counters'), 'stale_commits', 1)
    return 'stale'
  end
  if t.closed == attempt or not (t.state == 'running' or is_reaped(t)) then return 'already' end
  return nil
end

-- Raises an error if a number of the sweep that an end changes is damaged: after the first write, the end would be
-- recorded by half.
local function assert_numbers(s)
  for _, field in ipairs({'dur_n', 'dur_sum', 'dur_sq', 'replicates'}) do
    if s[field] and not tonumber(s[field]) then error(field .. ' is no number', 0) end
  end
end

-- Returns what the end says to the circuit breaker, and how often in a row the worker has failed so in this sweep.
local function judge(s, worker)
  local mark = '-'
  if is_complete then
    mark = '+'
  elseif outcome == 'failed' then
    mark = circuit_breaker().mark_of(kind, fingerprint, args.evidence)
  end
  if mark == '+' or mark == '-' then
    redis.call('HDEL', key('w', worker), 'streak', 'streak_n', 'suspect_ms')
    return mark, 0
  end
  return mark, circuit_breaker().streak(s, worker, mark)
end

-- Requeues the trial, with the last reports of the attempt that failed. The next one avoids a host; '' for none.
local function requeue_failed(s, t, batch, ran, reason, avoid)
  requeue(s, t, reason, false)
  if batch then
    reports().add_points(t, batch, FULL)
    set(t, 'objective', batch.objective or '')
  end
  set(t, 'ran_ms', ran)
  save(t, 'avoid', avoid, 'avoid_ms', NOW_MS, 'step', args.step)
end

-- Ends the trial, with the last reports of its attempt.
local function end_trial(s, t, batch, ran)
  local fields = {'objective', objective, 'step', args.step}
  local function tell(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end
  if is_set(s.sampler) and best ~= '' then tell('best', best) end
  if args.values then tell('values', args.values) end
  if args.violations then tell('violations', args.violations) end
  if args.infeasible then tell('infeasible', args.infeasible) end
  if kind ~= '' then tell('kind', kind) end
  if error_text ~= '' then tell('error', error_text) end
  if fingerprint ~= '' then tell('fingerprint', fingerprint) end
  local told = #fields
  tell('ran_ms', ran)
  tell('best_value', best)
  if args.usage then tell('usage', args.usage) end
  if artifacts ~= '' then
    files().add_store(sid, artifacts)
    set(t, 'artifacts', artifacts)
  elseif unstored ~= '' then
    files().await(s, t, unstored)
  end
  -- The first attempt of a trial that has sent nothing before has no streams: its points go into the record.
  local last
  if not t.seq and attempt == '1' then
    last = {}
    for i = 3, batch and not FULL and #ARGV or 0 do last[i - 2] = ARGV[i] end
  else
    if batch then reports().add_points(t, batch, FULL) end
    unset(t, 'resumes', 'phase')
    save(t)  -- `finish` packs the metrics that the record names
  end
  finish(s, t, outcome, fields, told, last)
end

-- Counts the end of a trial in its sweep: the ranking, how long trials take, and the circuit breaker.
local function count_in_sweep(s, t, worker, mark, ran)
  if kind == 'diverged' then redis.call('HINCRBY', s.KEY, 'n_diverged', 1) end
  if is_complete then
    if objective ~= '' and not args.infeasible then rank(s, n, objective) end
    add(s, 'dur_n', 1)
    set(s, 'dur_sum', string.format('%.17g', (s.dur_sum or 0) + ran))
    set(s, 'dur_sq', string.format('%.17g', (s.dur_sq or 0) + ran * ran))
  end
  if t.again then return end
  if kind == 'unreported' then circuit_breaker().hold_if_unreported(s, t, error_text) end
  if args.evidence == 'code' and outcome == 'failed' then
    circuit_breaker().hold_if_alike(s, t, worker, mark, circuit_breaker().ends_in(s.tail))
  end
end

local function commit()
  local s = read_sweep(sid, 'metric', 'metric_order', 'early', 'constraints', 'keep', 'replicates', 'tail',
    'dur_n', 'dur_sum', 'dur_sq')
  local t = read_trial(sid, n)
  local refused = refusal(s, t)
  if refused then return {refused, '', 0} end
  assert_numbers(s)

  local rule = read_rule(s)
  local batch = args.last and reports().is_new(t, args.last) and args.last
  if batch then reports().take_batch(s, t, batch, rule, FULL) end

  local before, worker, was_reaped = demand(s), t.worker or '', is_reaped(t)
  if was_reaped then enter_again(s, t) end  -- what it has spent since counts
  -- Measured by the worker, since the server's clock also counts an outage of Redis.
  local ran = args.ran_ms or int(math.max(0, NOW - tonumber(t.claimed_ms)))
  t.UNTIL = math.min(NOW, tonumber(t.claimed_ms) + ran)  -- budgets and owners pay for no more

  local printed = batch and not FULL and ARGV[2] or ''
  if printed ~= '' or t.log_bytes then reports().pack_log(t, printed, tonumber(args.keep_log_bytes)) end
  local mark, in_a_row = judge(s, worker)
  local tail = s.tail or ''
  if not t.again then tail = circuit_breaker().with_end(tail, worker, mark) end
  set(s, 'tail', tail)

  local reply, reason, avoid
  if outcome == 'failed' then reply, reason, avoid = decide_retry(s, t, mark, tail, in_a_row) end
  if reply then
    if was_reaped then event(t, 'resumed') end  -- reaped, and then it failed
    requeue_failed(s, t, batch, ran, reason, avoid)
    update_queue(s, before)
    return {reply, s.queue, tickets(s)}
  end

  end_trial(s, t, batch, ran)
  count_in_sweep(s, t, worker, mark, ran)
  update_queue(s, before)
  if is_set(s.keep) or t.checkpoint then files().release(s, t, is_complete or kind == 'diverged') end
  if rule and is_complete and objective ~= '' and not args.infeasible then
    -- A result from a worker's disk arrives without its reports.
    early_termination().stop_at_target(s, t, rule, objective)
    save(s)
    save(t)
  end
  return {'done', s.queue, tickets(s)}
end

-- Counts an end, for graphs of the whole fleet: ended:OUTCOME:KIND:S, where S is the least power of four that is
-- no less than the seconds that the attempt ran.
local function count(ended)
  local seconds, most = tonumber(args.ran_ms or 0) / 1000, 1
  while most < seconds and most < 4 ^ 10 do most = most * 4 end
  redis.call('HINCRBY', key('counters'), table.concat({'ended', ended, kind, int(most)}, ':'), 1)
end

-- If a record is damaged, the worker keeps the result, as if Redis did not know the attempt.
local answer = sweeps().guarded(sid, commit) or {'unknown', '', 0}
if answer[1] == 'done' then count(outcome) end
if answer[1] == 'requeued' or answer[1] == 'suspect' then count(answer[1]) end
return answer
