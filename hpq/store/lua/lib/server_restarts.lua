-- Restarts of the server, and how new its data are. A server that restarts without its last writes, or empty, does
-- not know of them; a client that has seen newer data notices it by these (hpq/store/reader.py `lost_after`).

-- Records a restart, at the first call after it. Returns since when the server is up (0 if the prefix was
-- empty), and the time of a new stamp, which is later than all before it.
local function look()
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local f = redis.call('HMGET', key('server'), 'run_id', 'since', 'newest_ms')
  local since, newest = tonumber(f[2]) or 0, tonumber(f[3]) or 0
  local now = math.max(NOW, newest + 1)  -- the clock may be behind that of an earlier server
  if f[1] == run_id then return since, now end
  since = f[1] and NOW or 0  -- an empty prefix has no leases of an earlier server
  redis.call('ZADD', key('restarts'), int(now), int(newest))
  redis.call('ZREMRANGEBYRANK', key('restarts'), 0, -101)
  redis.call('HSET', key('server'), 'run_id', run_id, 'since', int(since), 'newest_ms', int(now))
  return since, now
end

return {look = look}
