-- A trial's points and log, and their memory. hpq/store/scripts.py prepends this text to every script,
-- after the prelude.

-- Returns the names of the metrics that a trial has points of.
local function metrics(t)
  local names = {}
  for _, field in ipairs(redis.call('HKEYS', t)) do
    if string.sub(field, 1, 2) == 'm:' then names[#names + 1] = string.sub(field, 3) end
  end
  return names
end

-- Resets a trial's values for early termination to the first `logged` ones, whose best is `best`.
local function rewind(sid, n, logged, best)
  local t = trial_key(sid, n)
  if redis.call('HEXISTS', t, 'logged') == 0 then return end
  for band in string.gmatch(redis.call('HGET', sweep_key(sid), 'bands') or '', '%d+') do
    if tonumber(band) > logged then redis.call('ZREM', sweep_key(sid, 'band:' .. band), n) end
  end
  redis.call('HSET', t, 'logged', int(logged), 'best', best)
  redis.call('HDEL', t, 'logged_at', 'best_before')
end

-- Removes everything that a trial reported.
local function forget_points(sid, n)
  local t = trial_key(sid, n)
  rewind(sid, n, 0, '')
  for _, name in ipairs(metrics(t)) do
    redis.call('DEL', trial_key(sid, n, 'p', name))
    redis.call('HDEL', t, 'm:' .. name)
  end
end

-- Records the approximate bytes of an ended trial's points and log (0: they were removed).
local function record_bytes(sid, n, bytes)
  local t = trial_key(sid, n)
  if not bytes then
    bytes = tonumber(redis.call('HGET', t, 'log_bytes') or 0)
    for _, name in ipairs(metrics(t)) do
      bytes = bytes + 300 + 40 * redis.call('XLEN', trial_key(sid, n, 'p', name))
    end
    redis.call('ZADD', key('bulk'), 'NX', int(NOW - 1), sid)
  end
  redis.call('HINCRBY', sweep_key(sid), 'bulk', bytes - tonumber(redis.call('HGET', t, 'bulk') or 0))
  if bytes > 0 then redis.call('HSET', t, 'bulk', bytes) else redis.call('HDEL', t, 'bulk') end
end

-- Drops the points and logs of the trials that ended first, until about `wanted` bytes are free;
-- returns the freed bytes. The trials' last values and results stay.
local function free_memory(wanted)
  local freed, left = 0, 200
  while freed < wanted and left > 0 do
    local first = redis.call('ZRANGE', key('bulk'), 0, 0, 'WITHSCORES')
    if not first[1] then break end
    local sid, ended = first[1], sweep_key(first[1], 'ended')
    local n = redis.call('ZRANGEBYSCORE', ended, '(' .. first[2], '+inf', 'LIMIT', 0, 1)[1]
    if not n then
      redis.call('ZREM', key('bulk'), sid)
    else
      local at = redis.call('ZSCORE', ended, n)
      for _, m in ipairs(redis.call('ZRANGEBYSCORE', ended, '(' .. first[2], at)) do
        local t = trial_key(sid, m)
        freed, left = freed + tonumber(redis.call('HGET', t, 'bulk') or 0), left - 1
        redis.call('DEL', trial_key(sid, m, 'log'))
        for _, name in ipairs(metrics(t)) do redis.call('DEL', trial_key(sid, m, 'p', name)) end
        redis.call('HDEL', t, 'log_bytes')
        if redis.call('HEXISTS', t, 'bulk') == 1 then redis.call('HSET', t, 'thinned', '1') end
        record_bytes(sid, m, 0)
        count('histories_dropped')
      end
      redis.call('ZADD', key('bulk'), at, sid)
    end
  end
  return freed
end

-- Truncates the log to its newest bytes. Entries keep their ids, which readers follow.
local function keep_log(sid, n, bytes)
  local t = trial_key(sid, n)
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
