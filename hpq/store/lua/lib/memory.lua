-- Memory for the points and logs of ended trials.

-- Takes a trial out of the sweep's count of these bytes, as it runs again or has neither; returns how many
-- it had.
local function forget_bytes(sid, n)
  local name = trial_key(sid, n)
  local bytes = tonumber(redis.call('HGET', name, 'bulk') or 0)
  points().add_bytes(sid, -bytes)
  redis.call('HDEL', name, 'bulk')
  return bytes
end

-- Drops the points and logs of the trials that ended first, until about `wanted` bytes are free;
-- returns the freed bytes. The trials' last values and results stay.
local function free_memory(wanted)
  local freed, left = 0, 200
  while freed < wanted and left > 0 do
    local first = redis.call('ZRANGE', key('bulk'), 0, 0, 'WITHSCORES')
    if not first[1] then break end
    local sid = first[1]
    local is_well = sweeps().guarded(sid, function()
      local ended = sweep_key(sid, 'ended')
      local n = redis.call('ZRANGEBYSCORE', ended, '(' .. first[2], '+inf', 'LIMIT', 0, 1)[1]
      if not n then return redis.call('ZREM', key('bulk'), sid) end
      local at = redis.call('ZSCORE', ended, n)
      for _, m in ipairs(redis.call('ZRANGEBYSCORE', ended, '(' .. first[2], at)) do
        local t = trial_key(sid, m)
        local bytes = forget_bytes(sid, m)
        freed, left = freed + bytes, left - 1
        redis.call('DEL', trial_key(sid, m, 'log'), trial_key(sid, m, 'points'))
        redis.call('HDEL', t, 'log_bytes')
        if bytes > 0 then redis.call('HSET', t, 'thinned', '1') end
        redis.call('HINCRBY', key('counters'), 'histories_dropped', 1)
      end
      return redis.call('ZADD', key('bulk'), at, sid)
    end)
    if not is_well then redis.call('ZREM', key('bulk'), sid) end
  end
  return freed
end

-- Truncates the log to its newest bytes. Entries keep their ids, which readers follow.
local function keep_log(t, bytes)
  if tonumber(t.log_bytes or 0) <= bytes then return end
  local log, kept, left, last = trial_key(t.SID, t.N, 'log'), {}, bytes, '+'
  while left > 0 do
    local entry = redis.call('XREVRANGE', log, last, '-', 'COUNT', 1)[1]
    if not entry then break end
    local data = string.sub(entry[2][2], -left)
    kept[#kept + 1], left, last = {entry[1], data}, left - #data, '(' .. entry[1]
  end
  redis.call('DEL', log)
  for i = #kept, 1, -1 do redis.call('XADD', log, kept[i][1], 'd', kept[i][2]) end
  set(t, 'log_bytes', bytes - left)
end

return {forget_bytes = forget_bytes, free_memory = free_memory, keep_log = keep_log}
