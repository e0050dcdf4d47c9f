-- Pointers to trials' files in file stores. Files without a pointer are removed by a worker that has
-- their store (hpq/store/file_garbage.py). hpq/store/scripts.py prepends this text to every script,
-- after the prelude.

-- Returns the id of the store that a pointer (JSON) names; raises an error if it names none.
local function store_of(pointer)
  local decoded = cjson.decode(pointer)
  return type(decoded) == 'table' and type(decoded.store) == 'string' and decoded.store
    or error('a pointer to files names no store')
end

-- Records that the store of a pointer has files of this sweep.
local function add_store(sid, pointer)
  redis.call('SADD', sweep_key(sid, 'stores'), store_of(pointer))
end

-- Removes the pointer to a trial's checkpoint, and those in `...`.
local function drop_checkpoint(sid, n, ...)
  redis.call('HDEL', trial_key(sid, n), 'checkpoint', 'checkpoint_step', ...)
end

-- Returns the set of trial numbers that `keep` selects, including ties with the last of the best.
local function kept_numbers(sid, keep)
  local numbers, goal = {}, redis.call('HGET', sweep_key(sid), 'goal')
  local function add(list) for _, n in ipairs(list) do numbers[n] = true end end
  if keep.last > 0 then add(redis.call('ZREVRANGE', sweep_key(sid, 'ended'), 0, keep.last - 1)) end
  if keep.best > 0 then
    local ranking, i = sweep_key(sid, 'rank'), keep.best - 1
    local max = goal == 'maximize'
    local limit = redis.call(max and 'ZREVRANGE' or 'ZRANGE', ranking, i, i, 'WITHSCORES')[2]
    if not limit then
      add(redis.call('ZRANGE', ranking, 0, -1))
    elseif max then
      add(redis.call('ZREVRANGEBYSCORE', ranking, '+inf', limit))
    else
      add(redis.call('ZRANGEBYSCORE', ranking, '-inf', limit))
    end
  end
  return numbers
end

-- Releases files after a trial ended: those that the sweep's `keep` does not select; without a `keep`,
-- the checkpoint of a trial that is complete (`is_complete`) and so is never resumed.
local function release_files(sid, n, is_complete)
  local t, files = trial_key(sid, n), sweep_key(sid, 'files')
  local keep = redis.call('HGET', sweep_key(sid), 'keep') or ''
  if keep == '' and is_complete then drop_checkpoint(sid, n) end
  local has = redis.call('HEXISTS', t, 'artifacts') + redis.call('HEXISTS', t, 'checkpoint') > 0
  redis.call(has and 'SADD' or 'SREM', files, n)
  if keep == '' then return end
  local kept = kept_numbers(sid, cjson.decode(keep))
  for _, other in ipairs(redis.call('SMEMBERS', files)) do
    if not kept[other] and redis.call('ZSCORE', sweep_key(sid, 'ended'), other) then
      local other_t = trial_key(sid, other)
      if redis.call('HEXISTS', other_t, 'artifacts') == 1 then redis.call('HSET', other_t, 'gone', 'keep') end
      drop_checkpoint(sid, other, 'artifacts')
      redis.call('SREM', files, other)
    end
  end
end
