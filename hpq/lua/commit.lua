-- The end of an attempt, taken once: from the latest attempt, while it runs or after it was reaped
-- and before anyone claimed the trial again.
-- KEYS prefix
-- ARGV sweep, number, attempt, outcome (finished failed pruned cancelled), objective ('' for none),
--      step, failure kind, error line, fingerprint, retries allowed, by progress (1: a failure after
--      the step has risen is not charged), moves (1: rather on another host), log bytes to keep,
--      artifacts as JSON ('' for none)
-- Replies: done | requeued | already | stale | unknown, then class and tickets, then the trials
--      whose files may go: number/attempt for checkpoints, with a + for artifacts, too

local sid, n, attempt, outcome, objective = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local step, kind, message, fingerprint = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local s, t = sweep_key(sid), trial_key(sid, n)

local f = redis.call('HMGET', t, 'state', 'attempt', 'reaped', 'closed', 'claimed_ms', 'host', 'failed_step')
if not f[1] then return {'unknown', '', 0} end
if f[2] ~= attempt then
  count('stale_commits')
  return {'stale', '', 0}
end
if f[4] == attempt or not (f[1] == 'running' or (f[1] == 'queued' and f[3] == attempt)) then
  return {'already', '', 0}
end

-- True where the sweep lets this failure be tried again.
local function again()
  local flag = redis.call('HGET', s, 'flag')
  if outcome ~= 'failed' or flag == 'stopped' or flag == 'cancelled' then return false end
  if ARGV[11] == '1' and step > tonumber(f[7] or 0) then
    redis.call('HSET', t, 'failed_step', step)
    return true
  end
  return redis.call('HINCRBY', t, 'c:' .. kind, 1) <= tonumber(ARGV[10])
end

-- The breaker: a sweep whose first five, or eight of the last ten trials fail alike is held.
local function breaker()
  local mark = outcome == 'failed' and kind == 'user_error' and fingerprint or '-'
  local tail = (redis.call('HGET', s, 'tail') or '') .. '\n' .. mark
  local last, same = {}, 0
  for one in string.gmatch(tail, '[^\n]+') do last[#last + 1] = one end
  while #last > 10 do table.remove(last, 1) end
  redis.call('HSET', s, 'tail', table.concat(last, '\n'))
  if mark == '-' then return end
  for _, one in ipairs(last) do if one == mark then same = same + 1 end end
  local first = #last == 5 and same == 5
  if not first and same < 8 then return end
  local held = same .. ' of ' .. #last .. ' ' .. mark
  redis.call('HSET', s, 'held', held)
  event(sid, 'held', n, attempt, 'why', held)
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

-- Trials whose files nobody needs any more. They are named again until `forget` says they are gone.
local function doomed()
  local keep, found = redis.call('HGET', s, 'keep'), {}
  if not keep or keep == '' then
    local over = outcome == 'finished' or outcome == 'pruned' or kind == 'diverged'
    if over and redis.call('HEXISTS', t, 'checkpoint') == 1 then found[1] = n .. '/' .. attempt end
    return found
  end
  local stays = kept(cjson.decode(keep))
  for _, one in ipairs(redis.call('SMEMBERS', files)) do
    if not stays[one] and #found < 100 and redis.call('ZSCORE', sweep_key(sid, 'ended'), one) then
      found[#found + 1] = one .. '/' .. redis.call('HGET', trial_key(sid, one), 'attempt') .. '+'
    end
  end
  return found
end

local reply, gone = 'done', {}
local want = changing(sid, function()
  if again() then
    reply = 'requeued'
    redis.call('HSET', t, 'avoid', ARGV[12] == '1' and f[6] or '')
    requeue(sid, n, attempt, kind, false)
    return
  end
  local fields = {'objective', objective, 'step', step}
  for _, pair in ipairs({{'kind', kind}, {'error', message}, {'fingerprint', fingerprint}}) do
    if pair[2] ~= '' then fields[#fields + 1] = pair[1]; fields[#fields + 1] = pair[2] end
  end
  finish(sid, n, attempt, outcome, unpack(fields))
  redis.call('HDEL', t, 'phase', 'resumes')
  if ARGV[14] ~= '' then redis.call('HSET', t, 'artifacts', ARGV[14]) end
  if ARGV[14] ~= '' or redis.call('HEXISTS', t, 'checkpoint') == 1 then
    redis.call('SADD', files, n)
  end
  if kind == 'diverged' then redis.call('HINCRBY', s, 'n_diverged', 1) end
  if objective ~= '' and (outcome == 'finished' or outcome == 'pruned') then
    redis.call('ZADD', sweep_key(sid, 'rank'), objective, n)
  end
  if outcome == 'finished' then
    local ms = NOW - tonumber(f[5])
    redis.call('HINCRBY', s, 'dur_n', 1)
    redis.call('HINCRBYFLOAT', s, 'dur_sum', int(ms))
    redis.call('HINCRBYFLOAT', s, 'dur_sq', int(ms * ms))
  end
  breaker()
  gone = doomed()
end)
keep_log(tonumber(ARGV[13]))
return {reply, want[1], want[2], unpack(gone)}
