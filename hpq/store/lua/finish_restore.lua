-- Makes a restored sweep visible with all its rows, in one step.
-- KEYS prefix
-- ARGV {sweep, token (of this restore), trials (how many the sweep has), keys (how many were restored),
--      parts (of the sweep that were restored), ttl_s}, then the fields of the sweep's hash
-- Replies: created queue tickets | exists | torn

local args = cjson.decode(ARGV[1])
local sid, token, ttl = args.sweep, args.token, tonumber(args.ttl_s)
local trials, expected = tonumber(args.trials), tonumber(args.keys)
local name, lock = sweep_key(sid), sweep_key(sid, 'restoring')
local has_lock = redis.call('GET', lock) == token
if redis.call('EXISTS', name) == 1 then
  if not has_lock then return {'exists'} end
  local s = read_sweep(sid)
  return {'created', s.queue, tickets(s)}  -- the same call, sent twice
end
if not has_lock then return {'torn'} end

-- Calls PERSIST or EXPIRE on every key; returns the number of keys that exist.
local function each(command, ...)
  local done = 0
  for _, part in ipairs(args.parts) do
    done = done + redis.call(command, sweep_key(sid, part), ...)
  end
  for n = 1, trials do
    local t = trial_key(sid, n)
    if redis.call(command, t, ...) == 1 then
      done = done + 1
      for _, part in ipairs({'log', 'points'}) do done = done + redis.call(command, trial_key(sid, n, part), ...) end
      for _, name in ipairs(points().metrics(t)) do
        done = done + redis.call(command, trial_key(sid, n, 'p:' .. name), ...)
      end
    end
  end
  return done
end

if each('PERSIST') ~= expected then
  each('EXPIRE', ttl)
  return {'torn'}
end
redis.call('HSET', name, unpack(ARGV, 2))
redis.call('HSET', name, 'restored_ms', NOW_MS)
redis.call('ZREM', key('removed'), sid)
sharing().hold_code(sid)
local ran = redis.call('SMEMBERS', sweep_key(sid, 'ran_on'))
redis.call('DEL', sweep_key(sid, 'ran_on'))  -- hold_ran_on counts them again
for _, digest in ipairs(ran) do sharing().hold_ran_on(sid, digest) end
redis.call('EXPIRE', lock, 60)  -- until then, the caller may repeat this call
local s = read_sweep(sid, 'created_ms', 'digest')
redis.call('ZADD', key('sweeps'), s.created_ms, sid)
redis.call('HSETNX', key('digests'), s.digest, sid)
redis.call('HSETNX', key('last'), s.owner, sid)
if not is_done(s) then sweeps().open(s) end
update_queue(s, 0)
return {'created', s.queue, tickets(s)}
