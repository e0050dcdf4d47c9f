-- Records that sweeps share under digests: code bundles, manifests, and provenance (what attempts ran on).

local DAY = 86400000

-- Counts a sweep among those that share its bundle; the bundle stays until the last one is removed.
local function hold_code(sid)
  local digest = redis.call('HGET', sweep_key(sid), 'bundle')
  if not digest or digest == '' then return end
  redis.call('SADD', key('b', digest, 'sweeps'), sid)
  redis.call('PERSIST', key('b', digest))
end

-- Removes a sweep's share in its bundle. Call it after the sweep left `sweeps`.
local function drop_code(sid)
  local digest = redis.call('HGET', sweep_key(sid), 'bundle')
  if not digest or digest == '' then return end
  local sweeps = key('b', digest, 'sweeps')
  redis.call('SREM', sweeps, sid)
  if redis.call('SCARD', sweeps) > 0 then return end
  redis.call('UNLINK', key('b', digest))
  redis.call('HDEL', key('code'), digest)
end

-- The score of a digest in P:ran is the number of sweeps with attempts that ran on it, or, if none has,
-- minus the time since then.
local function add_ran_on(digest)
  local sweeps = tonumber(redis.call('ZSCORE', key('ran'), digest) or 0)
  redis.call('ZADD', key('ran'), int(math.max(0, sweeps) + 1), digest)
end

-- Counts a sweep among those with attempts that ran on a digest.
local function hold_ran_on(sid, digest)
  if digest ~= '' and redis.call('SADD', sweep_key(sid, 'ran_on'), digest) == 1 then add_ran_on(digest) end
end

-- Drops provenance records without sweeps, except those of live workers and of workers that have just
-- started: their next claim refers to the record.
local function drop_ran_on(sid)
  for _, digest in ipairs(redis.call('SMEMBERS', sweep_key(sid, 'ran_on'))) do
    local sweeps = tonumber(redis.call('ZINCRBY', key('ran'), -1, digest))
    -- No worker is starting with a record that was in use, so it may go at once.
    if sweeps <= 0 then redis.call('ZADD', key('ran'), -1, digest) end
  end
  local alive = {}
  for _, worker in ipairs(redis.call('ZRANGE', key('workers'), 0, -1)) do
    alive[redis.pcall('HGET', key('w', worker), 'ran_on') or ''] = true  -- an error is no digest
  end
  for _, digest in ipairs(redis.call('ZRANGEBYSCORE', key('ran'), int(DAY - NOW), 0)) do
    if not alive[digest] then
      redis.call('ZREM', key('ran'), digest)
      redis.call('HDEL', key('provenance'), digest)
    end
  end
end

-- Removes the code of the oldest ended sweeps if Redis holds more than MOST_CODE snapshots or MOST_CODE_BYTES.
local MOST_CODE, MOST_CODE_BYTES = 200, 256 * 1024 * 1024
local function bound_code()
  local bytes, digests = 0, redis.call('HKEYS', key('code'))
  for _, digest in ipairs(digests) do bytes = bytes + redis.call('STRLEN', key('b', digest)) end
  local excess = math.max(0, #digests - MOST_CODE)
  if excess == 0 and bytes <= MOST_CODE_BYTES then return end
  for _, sid in ipairs(redis.call('ZRANGE', key('sweeps'), 0, -1)) do
    sweeps().guarded(sid, function()
      local digest = redis.call('HGET', sweep_key(sid), 'bundle') or ''
      local users, in_use = redis.call('SMEMBERS', key('b', digest, 'sweeps')), digest == ''
      for _, other in ipairs(users) do in_use = in_use or not is_done(read_sweep(other)) end
      if in_use then return end
      bytes, excess = bytes - redis.call('STRLEN', key('b', digest)), excess - 1
      for _, other in ipairs(users) do redis.call('HSET', sweep_key(other), 'bundle', '') end
      redis.call('UNLINK', key('b', digest), key('b', digest, 'sweeps'))
      redis.call('HDEL', key('code'), digest)
    end)
    if excess <= 0 and bytes <= MOST_CODE_BYTES then return end
  end
end

return {hold_code = hold_code, drop_code = drop_code, hold_ran_on = hold_ran_on, add_ran_on = add_ran_on,
  drop_ran_on = drop_ran_on, bound_code = bound_code}
