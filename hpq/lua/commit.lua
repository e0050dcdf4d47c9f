-- The end of an attempt, taken once: from the latest attempt, while it runs or after it was reaped
-- and before anyone claimed the trial again.
-- KEYS prefix
-- ARGV sweep, number, attempt, outcome (finished failed pruned cancelled), objective ('' for none),
--      step, failure kind, error line, fingerprint, retries allowed, by progress (1: a failure after
--      the step has risen is not charged), moves (1: rather on another host), log bytes to keep, how
--      long it ran in ms ('' where nobody measured it), artifacts as JSON ('' for none), the best value
--      that it reported ('' for none)
-- Replies: done | requeued | suspect (given back uncharged: this worker fails alone) | already |
--      stale | unknown, then class and tickets

local sid, n, attempt, outcome, objective = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local step, kind, message, fingerprint = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local artifacts, best = ARGV[15] or '', ARGV[16] or ''
local s, t = sweep_key(sid), trial_key(sid, n)

if is_full() then make_room(65536) end  -- a result is taken all the same
local f = redis.call('HMGET', t, 'state', 'attempt', 'reaped', 'closed', 'claimed_ms', 'host', 'failed_step',
  'stop', 'worker')
if not f[1] or not is_there(sid) then return {'unknown', '', 0} end
if f[2] ~= attempt then
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
  if ARGV[11] == '1' and step > tonumber(f[7] or 0) then
    redis.call('HSET', t, 'failed_step', step)
    return true
  end
  return redis.call('HINCRBY', t, 'c:' .. kind, 1) <= tonumber(ARGV[10])
end

-- The guards. A sweep's tail is its last ten ends, who saw each and its mark: '+' for a trial that
-- passed, '-' for one that says nothing, else what failed.
local TELLING = {user_error = true, killed = true, stalled = true, out_of_memory = true}
local worker, mark = f[9] or '', (outcome == 'finished' or outcome == 'pruned') and '+' or '-'
if outcome == 'failed' and TELLING[kind] then
  mark = string.gsub(kind == 'user_error' and fingerprint or kind .. ' ' .. fingerprint, '[\n\t]', ' ')
end
local is_failure = mark ~= '+' and mark ~= '-'

local function tail()
  local all = (redis.call('HGET', s, 'tail') or '') .. worker .. '\t' .. mark .. '\n'
  local last, from = {}, 1
  for who, what in string.gmatch(all, '([^\n\t]*)\t([^\n]*)\n') do last[#last + 1] = {who, what} end
  if #last > 10 then
    table.remove(last, 1)
    from = string.find(all, '\n', 1, true) + 1
  end
  redis.call('HSET', s, 'tail', string.sub(all, from))
  return last
end

-- How often in a row this worker has failed so in this sweep.
local function streak()
  local w, this = key('w', worker), sid .. '\t' .. mark
  if redis.call('EXISTS', w) == 0 then return 1 end
  if not is_failure then return redis.call('HDEL', w, 'streak', 'streak_n') end
  if redis.call('HGET', w, 'streak') ~= this then redis.call('HSET', w, 'streak', this, 'streak_n', 0) end
  return redis.call('HINCRBY', w, 'streak_n', 1)
end

-- True where another worker might take the sweep.
local function has_peer()
  for _, other in ipairs(takers(sid)) do
    if other.name ~= worker then return true end
  end
  return false
end

-- Counted in the tail: failures like this one, those of them on other workers, and what passed there.
local function compare(last)
  local same, others, passed = 0, 0, 0
  for _, one in ipairs(last) do
    local elsewhere = one[1] ~= worker
    if one[2] == mark then
      same, others = same + 1, others + (elsewhere and 1 or 0)
    elseif one[2] == '+' and elsewhere then
      passed = passed + 1
    end
  end
  return same, others, passed
end

-- A worker that alone fails so, while others pass or nobody else was asked yet, gives the trial to
-- them: it may be the worker that is at fault.
local function is_suspect(others, passed, in_a_row)
  if others > 0 or not ((in_a_row >= 3 and passed >= 2) or in_a_row >= 5) then return false end
  return f[1] == 'running' and not is_to_end() and has_peer()
end

-- The breaker: a sweep whose first five, or eight of the last ten trials fail alike is held, once
-- two workers have seen it, or the only one.
local function breaker(last, same, others)
  if kind ~= 'user_error' or not ((same == #last and same >= 5) or same >= 8) then return end
  if others > 0 and others < same or not has_peer() then
    hold(sid, n, attempt, same .. ' of ' .. #last .. ' ' .. mark)
  end
end

local function pass_canary()
  local c = redis.call('HMGET', s, 'canary', 'n_finished', 'n_pruned')
  local canary = tonumber(c[1] or 0)
  if canary > 0 and tonumber(c[2] or 0) + tonumber(c[3] or 0) >= canary then redis.call('HSET', s, 'canary', '0') end
end

-- Keeps exactly the newest bytes of the log. Entries keep their ids, by which readers follow.
local function keep_log(bytes)
  local log, size = trial_key(sid, n, 'log'), tonumber(redis.call('HGET', t, 'log_bytes') or 0)
  if size <= bytes then return end
  local kept, left, last = {}, bytes, '+'
  while left > 0 do
    local entry = redis.call('XREVRANGE', log, last, '-', 'COUNT', 1)[1]
    if not entry then break end
    local data = string.sub(entry[2][2], -left)
    kept[#kept + 1], left, last = {entry[1], data}, left - #data, '(' .. entry[1]
  end
  redis.call('DEL', log)
  for i = #kept, 1, -1 do redis.call('XADD', log, kept[i][1], 'd', kept[i][2]) end
  redis.call('HSET', t, 'log_bytes', bytes - left)
end

local files = sweep_key(sid, 'files')

-- The numbers that the sweep's `keep` lets stay. What ties with the last of the best stays, too.
local function kept(keep)
  local stays, metric = {}, redis.call('HGET', s, 'goal')
  local function add(list) for _, one in ipairs(list) do stays[one] = true end end
  if keep.last > 0 then add(redis.call('ZREVRANGE', sweep_key(sid, 'ended'), 0, keep.last - 1)) end
  if keep.best > 0 then
    local rank, i = sweep_key(sid, 'rank'), keep.best - 1
    local max = metric == 'maximize'
    local edge = redis.call(max and 'ZREVRANGE' or 'ZRANGE', rank, i, i, 'WITHSCORES')[2]
    if not edge then
      add(redis.call('ZRANGE', rank, 0, -1))
    elseif max then
      add(redis.call('ZREVRANGEBYSCORE', rank, '+inf', edge))
    else
      add(redis.call('ZRANGEBYSCORE', rank, '-inf', edge))
    end
  end
  return stays
end

-- Nobody needs the checkpoint of a trial that came to its end, nor files that `keep` lets go.
local function let_files_go()
  local keep = redis.call('HGET', s, 'keep')
  if not keep or keep == '' then
    if outcome == 'finished' or outcome == 'pruned' or kind == 'diverged' then
      forget_files(sid, n, 'checkpoint', 'checkpoint_step')
    end
  end
  if redis.call('HEXISTS', t, 'artifacts') + redis.call('HEXISTS', t, 'checkpoint') > 0 then
    redis.call('SADD', files, n)
  end
  if not keep or keep == '' then return end
  local stays = kept(cjson.decode(keep))
  for _, one in ipairs(redis.call('SMEMBERS', files)) do
    if not stays[one] and redis.call('ZSCORE', sweep_key(sid, 'ended'), one) then
      forget_files(sid, one, 'checkpoint', 'checkpoint_step', 'artifacts')
      redis.call('SREM', files, one)
    end
  end
end

keep_log(tonumber(ARGV[13]))  -- before the trial ends: then it is weighed
local reply = 'done'
local want = changing(sid, function()
  local last, in_a_row = tail(), streak()
  local same, others, passed = compare(last)
  if is_failure and is_suspect(others, passed, in_a_row) then
    reply = 'suspect'
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
  if is_failure then breaker(last, same, others) end
  let_files_go()
end)
if reply == 'done' and objective ~= '' and (outcome == 'finished' or outcome == 'pruned') then
  local rule = read_rule(sid)  -- a result may come without its reports, from a worker's disk
  if rule then mind_target(sid, n, attempt, rule, objective) end
end
return {reply, want[1], want[2]}
