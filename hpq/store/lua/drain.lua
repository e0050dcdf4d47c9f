-- A person tells a worker to take nothing more, or to take again.
-- KEYS prefix
-- ARGV worker, drain or undo, for how many ms (0: until it is undone)
-- Replies: ok, the trial that it is at ('' for none) | unknown, where no such worker is alive

local worker, verb, lasts = ARGV[1], ARGV[2], tonumber(ARGV[3])
local w = key('w', worker)
local f = redis.call('HMGET', w, 'class', 'claim')
if not f[1] or not redis.call('ZSCORE', key('workers'), worker) then return {'unknown'} end

-- By the trial itself: what the worker says of itself may be some seconds old.
local function at_work()
  local sid, n, attempt = string.match(f[2] or '', '^([^/]+)/(%d+)/(%d+)$')
  if not sid then return '' end
  local t = redis.call('HMGET', trial_key(sid, n), 'state', 'attempt', 'worker')
  return t[1] == 'running' and t[2] == attempt and t[3] == worker and sid .. '/' .. n or ''
end

if verb == 'undo' then
  redis.call('HDEL', w, 'drain')
else
  redis.call('HSET', w, 'drain', lasts == 0 and 0 or int(NOW + lasts))
  redis.call('ZREM', key('c', f[1], 'idle'), worker)
end
return {'ok', at_work()}
