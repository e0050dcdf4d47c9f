-- Pointers to trials' files in file stores. Files without a pointer are removed by a worker that has
-- their store (hpq/store/file_garbage.py).

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

-- Records that files of a trial that ends wait on the disk of their worker for the store that a pointer names.
local function await(s, t, pointer)
  add_store(s.SID, pointer)
  set(t, 'unstored', pointer)
  redis.call('HINCRBY', s.KEY, 'unstored', 1)
  redis.call('HINCRBY', key('counters'), 'store_refused', 1)
end

-- Forgets that files of a trial wait for their store; returns whether they did.
local function forget_unstored(sid, n)
  local did = redis.call('HDEL', trial_key(sid, n), 'unstored') == 1
  if did then redis.call('HINCRBY', sweep_key(sid), 'unstored', -1) end
  return did
end

-- Returns the set of trial numbers that `keep` selects, including ties with the last of the best.
local function kept_numbers(s, keep)
  local numbers, sid = {}, s.SID
  local function add_all(list) for _, n in ipairs(list) do numbers[n] = true end end
  if keep.last > 0 then add_all(redis.call('ZREVRANGE', sweep_key(sid, 'ended'), 0, keep.last - 1)) end
  if keep.best > 0 then
    local ranking, i = sweep_key(sid, 'rank'), keep.best - 1
    local max = redis.call('HGET', s.KEY, 'goal') == 'maximize'
    local limit = redis.call(max and 'ZREVRANGE' or 'ZRANGE', ranking, i, i, 'WITHSCORES')[2]
    if not limit then
      add_all(redis.call('ZRANGE', ranking, 0, -1))
    elseif max then
      add_all(redis.call('ZREVRANGEBYSCORE', ranking, '+inf', limit))
    else
      add_all(redis.call('ZRANGEBYSCORE', ranking, '-inf', limit))
    end
  end
  return numbers
end

-- Releases files after a trial ended and its record was saved: those that the sweep's `keep` does not
-- select; without a `keep`, the checkpoint of a trial that is complete (`is_complete`) and so is never
-- resumed. Needs `keep`.
local function release_files(s, t, is_complete)
  if not is_set(s.keep) then
    if is_complete and t.checkpoint then
      unset(t, 'checkpoint', 'checkpoint_step')
      save(t)
      if not t.artifacts and not t.unstored then redis.call('SREM', sweep_key(s.SID, 'files'), t.N) end
    end
    return
  end
  local files, kept = sweep_key(s.SID, 'files'), kept_numbers(s, cjson.decode(s.keep))
  for _, other in ipairs(redis.call('SMEMBERS', files)) do
    if not kept[other] and redis.call('ZSCORE', sweep_key(s.SID, 'ended'), other) then
      local name = trial_key(s.SID, other)
      local had = redis.call('HEXISTS', name, 'artifacts') == 1
      if forget_unstored(s.SID, other) or had then redis.call('HSET', name, 'gone', 'keep') end
      redis.call('HDEL', name, 'checkpoint', 'checkpoint_step', 'artifacts')
      redis.call('SREM', files, other)
    end
  end
end

return {store_of = store_of, add_store = add_store, await = await, forget_unstored = forget_unstored,
  release = release_files}
