-- Drains a worker, so that it claims no more trials, or undoes that.
-- KEYS prefix
-- ARGV worker, drain or undo
-- Replies: ok, the trial that it runs ('' for none) | unknown (no such worker is alive)

local worker, verb = ARGV[1], ARGV[2]
local w = key('w', worker)
local f = redis.call('HMGET', w, 'queue', 'claim')
if not f[1] or not redis.call('ZSCORE', key('workers'), worker) then return {'unknown'} end

-- Read from the trial: the worker's own hash may be some seconds old.
local function running_trial()
  local sid, n, attempt = string.match(f[2] or '', '^([^/]+)/(%d+)/(%d+)$')
  if not sid then return '' end
  local t = redis.call('HMGET', trial_key(sid, n), 'state', 'attempt', 'worker')
  return t[1] == 'running' and t[2] == attempt and t[3] == worker and sid .. '/' .. n or ''
end

if verb == 'undo' then
  redis.call('HDEL', w, 'drain')
else
  redis.call('HSET', w, 'drain', 1)
  redis.call('ZREM', key('q', f[1], 'idle'), worker)
end
return {'ok', running_trial()}
