-- The files of trials in stores: what points to them, and which of them may go. hpq/store/scripts.py puts
-- this text before every script, behind the prelude.

-- The id of the store that a pointer (JSON) names; what names none is an error.
local function store_of(pointer)
  local told = cjson.decode(pointer)
  return type(told) == 'table' and type(told.store) == 'string' and told.store
    or error('a pointer to files names no store')
end

-- The files of an attempt lie in the store that a pointer names.
local function add_store(sid, pointer)
  redis.call('SADD', sweep_key(sid, 'stores'), store_of(pointer))
end

-- Files of a trial (n '': of a sweep) that nothing points to may go, wherever they are: whoever has
-- the store removes them and takes this down (hpq/store/file_garbage.py).
local function doom(sid, n)
  for _, store in ipairs(redis.call('SMEMBERS', sweep_key(sid, 'stores'))) do
    redis.call('XADD', key('garbage', store), '*', 's', sid, 'n', n)
  end
end

-- What was named of a sweep's files stays after all.
local function spare(sid, stores)
  for _, store in ipairs(stores) do
    local garbage, start = key('garbage', store), '-'
    repeat
      local page = redis.call('XRANGE', garbage, start, '+', 'COUNT', 500)
      for _, entry in ipairs(page) do
        start = '(' .. entry[1]
        if entry[2][2] == sid then redis.call('XDEL', garbage, entry[1]) end  -- s comes first
      end
    until #page < 500
  end
end

-- Nothing points to these files of a trial any more.
local function forget_files(sid, n, ...)
  redis.call('HDEL', trial_key(sid, n), ...)
  doom(sid, n)
end

-- The numbers that the sweep's `keep` lets stay. What ties with the last of the best stays, too.
local function kept(sid, keep)
  local stays, metric = {}, redis.call('HGET', sweep_key(sid), 'goal')
  local function add(list) for _, one in ipairs(list) do stays[one] = true end end
  if keep.last > 0 then add(redis.call('ZREVRANGE', sweep_key(sid, 'ended'), 0, keep.last - 1)) end
  if keep.best > 0 then
    local rank, i = sweep_key(sid, 'rank'), keep.best - 1
    local max = metric == 'maximize'
    local edge = redis.call(max and 'ZREVRANGE' or 'ZRANGE', rank, i, i, 'WITHSCORES')[2]
    if not edge then
      add(redis.call('ZRANGE', rank, 0, -1))
    elseif max then
      add(redis.call('ZREVRANGEBYSCORE', rank, '+inf', edge))
    else
      add(redis.call('ZRANGEBYSCORE', rank, '-inf', edge))
    end
  end
  return stays
end

-- A trial has ended: files that the sweep's `keep` lets go are needed no more, and without a `keep`
-- neither is the checkpoint of one that came to its end (`is_whole`), which nobody resumes.
local function let_files_go(sid, n, is_whole)
  local t, files = trial_key(sid, n), sweep_key(sid, 'files')
  local keep = redis.call('HGET', sweep_key(sid), 'keep') or ''
  if keep == '' and is_whole then forget_files(sid, n, 'checkpoint', 'checkpoint_step') end
  local has = redis.call('HEXISTS', t, 'artifacts') + redis.call('HEXISTS', t, 'checkpoint') > 0
  redis.call(has and 'SADD' or 'SREM', files, n)
  if keep == '' then return end
  local stays = kept(sid, cjson.decode(keep))
  for _, one in ipairs(redis.call('SMEMBERS', files)) do
    if not stays[one] and redis.call('ZSCORE', sweep_key(sid, 'ended'), one) then
      local one_t = trial_key(sid, one)
      if redis.call('HEXISTS', one_t, 'artifacts') == 1 then redis.call('HSET', one_t, 'gone', 'keep') end
      forget_files(sid, one, 'checkpoint', 'checkpoint_step', 'artifacts')
      redis.call('SREM', files, one)
    end
  end
end
