-- The end of an attempt, taken once: from the latest attempt, while it runs or after it was reaped
-- and before anyone claimed the trial again.
-- KEYS prefix
-- ARGV sweep, number, attempt, outcome (finished failed pruned cancelled), objective ('' for none),
--      step, failure kind, error line, fingerprint, retries allowed, by progress (1: a failure beyond
--      the furthest step of all such before it is not charged), moves (1: rather on another host), log
--      bytes to keep, how long it ran in ms ('' where nobody measured it), artifacts as JSON ('' for
--      none), the best value that it reported ('' for none), the claim's nonce ('' for none)
-- Replies: done | requeued | suspect (given back uncharged: this worker fails alone) | already |
--      stale | unknown, then class and tickets

local sid, n, attempt, outcome, objective = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local step, kind, message, fingerprint = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local artifacts, best = ARGV[15] or '', ARGV[16] or ''
local s, t = sweep_key(sid), trial_key(sid, n)

-- Before anything is written: a result is taken whole or not at all.
local function finite(i, is_optional)
  local text = ARGV[i] or ''
  local x = tonumber(text)
  if (is_optional and text == '') or (x and x == x and math.abs(x) < math.huge) then return end
  error('argument ' .. i .. ' of a commit is no finite number: ' .. string.sub(text, 1, 40))
end
for _, i in ipairs({6, 10, 13}) do finite(i) end
for _, i in ipairs({5, 14, 16}) do finite(i, true) end
if artifacts ~= '' then has_store(artifacts) end

if is_full() then make_room(65536) end  -- a result is taken all the same
local f = redis.call('HMGET', t, 'state', 'attempt', 'reaped', 'closed', 'claimed_ms', 'host', 'failed_step',
  'stop', 'worker', 'nonce')
if not f[1] or not is_there(sid) then return {'unknown', '', 0} end
if f[2] ~= attempt or is_anothers(f[10], ARGV[17]) then
  count('stale_commits')
  return {'stale', '', 0}
end
if f[4] == attempt or not (f[1] == 'running' or (f[1] == 'queued' and f[3] == attempt)) then
  return {'already', '', 0}
end

-- The worker's measure: while Redis was away the server's clock ran on.
local ran = ARGV[14] ~= '' and ARGV[14] or int(NOW - tonumber(f[5]))

-- True where the sweep is to end, or the trial was told to stop: nothing of it starts again.
local function is_to_end()
  local flag = redis.call('HGET', s, 'flag')
  return flag == 'stopped' or flag == 'cancelled' or f[8]
end

-- True where this failure is tried again.
local function again()
  if outcome ~= 'failed' or is_to_end() then return false end
  if ARGV[11] == '1' then
    -- The first has no earlier one to be compared with: it is charged, however far it came.
    local furthest = tonumber(f[7])
    redis.call('HSET', t, 'failed_step', int(math.max(step, furthest or 0)))
    if furthest and step > furthest then return true end
  end
  return redis.call('HINCRBY', t, 'c:' .. kind, 1) <= tonumber(ARGV[10])
end

local worker, mark = f[9] or '', mark_of(outcome, kind, fingerprint)

-- A worker that alone fails so gives the trial to others: it may be the worker that is at fault.
local function is_suspect(last, in_a_row)
  local _, others, passed = compare(last, worker, mark)
  if mark == '+' or mark == '-' or not is_alone(others, passed, in_a_row) then return false end
  return f[1] == 'running' and not is_to_end() and has_peer(sid, worker)
end

local function pass_canary()
  local c = redis.call('HMGET', s, 'canary', 'n_finished', 'n_pruned')
  local canary = tonumber(c[1] or 0)
  if canary > 0 and tonumber(c[2] or 0) + tonumber(c[3] or 0) >= canary then redis.call('HSET', s, 'canary', '0') end
end

keep_log(sid, n, tonumber(ARGV[13]))  -- before the trial ends: then it is weighed
local reply = 'done'
local want = changing(sid, function()
  local last, in_a_row = tail(sid, worker, mark), streak(sid, worker, mark)
  if is_suspect(last, in_a_row) then
    reply = 'suspect'
    if redis.call('EXISTS', key('w', worker)) == 1 then
      redis.call('HSETNX', key('w', worker), 'suspect_ms', int(NOW))
    end
    requeue(sid, n, attempt, 'worker_fault', false)
    redis.call('HSET', t, 'avoid', f[6] or '', 'avoid_ms', int(NOW), 'ran_ms', ran)
    return
  end
  if again() then
    reply = 'requeued'
    if f[1] == 'queued' then event(sid, 'resumed', n, attempt) end  -- reaped, and then it failed
    requeue(sid, n, attempt, kind, false)
    redis.call('HSET', t, 'avoid', ARGV[12] == '1' and f[6] or '', 'avoid_ms', int(NOW), 'ran_ms', ran)
    return
  end
  local fields = {'objective', objective, 'step', step}
  if best ~= '' and (redis.call('HGET', s, 'sampler') or '') ~= '' then
    fields[5], fields[6] = 'best', best
  end
  for _, pair in ipairs({{'kind', kind}, {'error', message}, {'fingerprint', fingerprint}}) do
    if pair[2] ~= '' then fields[#fields + 1] = pair[1]; fields[#fields + 1] = pair[2] end
  end
  if artifacts ~= '' then
    has_files_in(sid, artifacts)
    redis.call('HSET', t, 'artifacts', artifacts)
  end
  finish(sid, n, attempt, outcome, unpack(fields))
  redis.call('HSET', t, 'ran_ms', ran)
  redis.call('HDEL', t, 'phase', 'resumes')
  if kind == 'diverged' then redis.call('HINCRBY', s, 'n_diverged', 1) end
  if objective ~= '' and (outcome == 'finished' or outcome == 'pruned') then
    place(sid, n, objective)
  end
  if outcome == 'finished' or outcome == 'pruned' then
    redis.call('HINCRBY', s, 'dur_n', 1)
    redis.call('HINCRBYFLOAT', s, 'dur_sum', ran)
    redis.call('HINCRBYFLOAT', s, 'dur_sq', int(ran * ran))
    pass_canary()
  end
  if outcome == 'failed' and kind ~= 'diverged' then mind_canary(sid, n, attempt, kind, message) end
  if CODE[kind] and outcome == 'failed' then breaker(sid, n, attempt, worker, last) end
  let_files_go(sid, n, outcome == 'finished' or outcome == 'pruned' or kind == 'diverged')
end)
if reply == 'done' and objective ~= '' and (outcome == 'finished' or outcome == 'pruned') then
  local rule = read_rule(sid)  -- a result may come without its reports, from a worker's disk
  if rule then mind_target(sid, n, attempt, rule, objective) end
end
return {reply, want[1], want[2]}
