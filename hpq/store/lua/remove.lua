-- Makes a sweep invisible in one step; the caller then deletes its parameters and trials. `removing` has
-- its id until then, so that an interrupted removal can be finished.
-- KEYS prefix
-- ARGV {sweep, keep (its files stay in their stores), last (the id of its last event, if it must be over;
--      optional), parts (the types of its keys that are removed here, by part: hpq/store/keys.py)}
-- Replies: ok, then the ids of the stores that have files of it | unknown | changed (not over, or another event)

local args = cjson.decode(ARGV[1])
local sid, last, parts = args.sweep, args.last, args.parts
-- False if a key has another type than a command reads: another client of Redis wrote it.
local function has_type(name, command)
  local answer = redis.pcall(command, name)
  return type(answer) ~= 'table' or not string.find(answer.err or '', 'WRONGTYPE', 1, true)
end

-- What another client of Redis left under another type goes first: nothing below can read it.
local SIZE_OF = {zset = 'ZCARD', set = 'SCARD', stream = 'XLEN', hash = 'HLEN', string = 'STRLEN'}
local function drop_other(name, command)
  if not has_type(name, command) then redis.call('UNLINK', name) end
end
local function drop_others()
  drop_other(sweep_key(sid), 'HLEN')
  for part, kind in pairs(parts) do drop_other(sweep_key(sid, part), SIZE_OF[kind]) end
  local params = sweep_key(sid, 'params')
  if has_type(params, 'HLEN') then return end  -- the caller deletes as many trials as it has fields
  local total = 0
  for _, part in ipairs({'waiting', 'running', 'dropped', 'ended'}) do
    total = total + redis.call('ZCARD', sweep_key(sid, part))
  end
  redis.call('UNLINK', params)
  for n = 1, total do redis.call('HSET', params, n, '') end
end
if not last then drop_others() end
local s = read_sweep(sid, 'digest', 'bands')
if not s.queue and not redis.call('ZSCORE', key('sweeps'), sid) then return {'unknown'} end
if last then
  local newest = redis.call('XREVRANGE', sweep_key(sid, 'events'), '+', '-', 'COUNT', 1)[1]
  if not is_done(s) or not newest or newest[1] ~= last then return {'changed'} end
end

-- `commit` drops results of a removed sweep, and keeps those of lost data; + ½: no worker removes its files.
redis.call('ZADD', key('removed'), string.format('%.1f', args.keep and NOW + 0.5 or NOW), sid)
redis.call('ZREMRANGEBYRANK', key('removed'), 0, -1001)
local stores = redis.call('SMEMBERS', sweep_key(sid, 'stores'))
for _, store in ipairs(stores) do redis.call('DEL', key('collected', store)) end  -- a worker looks soon
-- Each for itself: a damaged record fails in what reads it. The reaper corrects the counts.
local guarded = sweeps().guarded
if s.queue then
  close(s)
  redis.call('ZREM', key('q', s.queue, 'pending'), sid)
  guarded(sid, function() add_demand(s.queue, -demand(s)) end)
  count_busy(s, -s.RUNNING)
end
for _, n in ipairs(redis.call('ZRANGE', sweep_key(sid, 'running'), 0, -1)) do
  redis.call('ZREM', key('leases'), sid .. '/' .. n)
  guarded(sid, function()  -- the next heartbeat tells its worker that the attempt is over
    local t = trial_key(sid, n)
    redis.call('HSET', t, 'state', 'cancelled', 'closed', redis.call('HGET', t, 'attempt'))
  end)
end
redis.call('ZREM', key('sweeps'), sid)
redis.call('ZREM', key('histories'), sid)
if redis.call('HGET', key('digests'), s.digest or '') == sid then redis.call('HDEL', key('digests'), s.digest) end
if redis.call('HGET', key('last'), s.owner or '') == sid then redis.call('HDEL', key('last'), s.owner) end
redis.call('SADD', key('removing'), sid)
for band in string.gmatch(s.bands or '', '%d+') do
  redis.call('UNLINK', sweep_key(sid, 'band:' .. band))
end
guarded(sid, function() sharing().drop_code(sid) end)
guarded(sid, function() sharing().drop_ran_on(sid) end)
redis.call('UNLINK', s.KEY)
for part in pairs(parts) do redis.call('UNLINK', sweep_key(sid, part)) end
return {'ok', unpack(stores)}
