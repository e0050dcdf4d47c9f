-- Makes a sweep invisible in one step; the caller then deletes its parameters and trials. `removing` has
-- its id until then, so that an interrupted removal can be finished.
-- KEYS prefix
-- ARGV sweep, keep (1: its files stay in their stores), last (the id of its last event, if it must be over; or '')
-- Replies: ok, then the ids of the stores that have files of it | unknown | changed (not over, or another event)

local sid, keep, last = ARGV[1], ARGV[2], ARGV[3]
local s = read_sweep(sid, 'digest', 'bands')
is_full()
if not s.queue then return {'unknown'} end
if last ~= '' then
  local newest = redis.call('XREVRANGE', sweep_key(sid, 'events'), '+', '-', 'COUNT', 1)[1]
  if not is_done(s) or not newest or newest[1] ~= last then return {'changed'} end
end

-- `commit` drops results of a removed sweep, and keeps those of lost data; + ½: no worker removes its files.
redis.call('ZADD', key('removed'), string.format('%.1f', keep == '1' and NOW + 0.5 or NOW), sid)
redis.call('ZREMRANGEBYRANK', key('removed'), 0, -1001)
local stores = redis.call('SMEMBERS', sweep_key(sid, 'stores'))
for _, store in ipairs(stores) do redis.call('DEL', key('collected', store)) end  -- a worker looks soon
add_demand(s.queue, -demand(s))
count_busy(s, -s.RUNNING)
for _, n in ipairs(redis.call('ZRANGE', sweep_key(sid, 'running'), 0, -1)) do
  redis.call('ZREM', key('leases'), sid .. '/' .. n)
  local t = trial_key(sid, n)  -- the next heartbeat tells its worker that the attempt is over
  redis.call('HSET', t, 'state', 'cancelled', 'closed', redis.call('HGET', t, 'attempt'))
end
redis.call('ZREM', key('sweeps'), sid)
redis.call('ZREM', key('bulk'), sid)
close(s)
if redis.call('HGET', key('digests'), s.digest) == sid then redis.call('HDEL', key('digests'), s.digest) end
for _, field in ipairs(redis.call('HKEYS', s.KEY)) do  -- appended files
  if string.sub(field, 1, 5) == 'file:' then
    local digest = string.match(redis.call('HGET', s.KEY, field), '"digest":"(%x+)"')
    if digest and redis.call('HGET', key('digests'), digest) == sid then redis.call('HDEL', key('digests'), digest) end
  end
end
if redis.call('HGET', key('last'), s.owner) == sid then redis.call('HDEL', key('last'), s.owner) end
redis.call('SADD', key('removing'), sid)
for band in string.gmatch(s.bands or '', '%d+') do
  redis.call('UNLINK', sweep_key(sid, 'band:' .. band))
end
sharing().drop_code(sid)
sharing().drop_ran_on(sid)
redis.call('UNLINK', s.KEY)
for _, part in ipairs({'waiting', 'dropped', 'ids', 'running', 'ended', 'rank', 'means', 'files', 'stores', 'events',
  'origin', 'ran_on', 'restoring'}) do
  redis.call('UNLINK', sweep_key(sid, part))
end
return {'ok', unpack(stores)}
