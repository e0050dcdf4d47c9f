-- Logs and curves, dropped while the server is short of memory. P:histories has the order: the sweep that ended
-- first, then the next; after all of these the open sweeps, the oldest first, of which those of ended trials go.
-- Parameters, results, last values and events stay.

local SHORT = 0.9  -- of maxmemory
local STEP = 100   -- trials between two looks at the memory
local MOST = 500   -- trials and sweeps in a call: about 15 ms

-- True if more of maxmemory is used than should be.
local function is_short()
  local info = redis.call('INFO', 'memory')
  local function bytes(name) return tonumber(string.match(info, name .. ':(%d+)') or 0) end
  local limit = bytes('maxmemory')
  return limit > 0 and bytes('used_memory') - bytes('mem_not_counted_for_evict') > SHORT * limit
end

-- Drops those of the next trials of a sweep that ended; returns the number of these trials, more than STEP if
-- many ended in one millisecond.
local function drop_some(sid)
  local s, ended = also({KEY = sweep_key(sid)}, 'thinned_ms'), sweep_key(sid, 'ended')
  local from = '(' .. (s.thinned_ms or '0')
  local until_ms = redis.call('ZRANGEBYSCORE', ended, from, '+inf', 'WITHSCORES', 'LIMIT', STEP - 1, 1)[2]
  local trials = redis.call('ZRANGEBYSCORE', ended, from, until_ms or '+inf')
  local dropped = 0
  for _, n in ipairs(trials) do
    if redis.call('DEL', trial_key(sid, n, 'log'), trial_key(sid, n, 'points')) > 0 then
      redis.call('HDEL', trial_key(sid, n), 'log_bytes')
      redis.call('HSET', trial_key(sid, n), 'thinned', '1')
      dropped = dropped + 1
    end
  end
  if #trials == 0 then return 0 end
  set(s, 'thinned_ms', redis.call('ZSCORE', ended, trials[#trials]))
  save(s)
  redis.call('HINCRBY', key('counters'), 'histories_dropped', dropped)
  return #trials
end

-- Drops logs and curves until memory is free, as many as one call may.
local function make_room()
  if not is_short() then return end
  local order, left = redis.call('ZRANGE', key('histories'), 0, MOST - 1, 'WITHSCORES'), MOST
  for i = 1, #order, 2 do
    local sid = order[i]
    local function drop() return drop_some(sid) end
    local trials = sweeps().guarded(sid, drop) or 0
    while trials > 0 do
      left = left - trials
      if left <= 0 or not is_short() then return end
      trials = sweeps().guarded(sid, drop) or 0
    end
    left = left - 1
    if tonumber(order[i + 1]) < sweeps().OPEN then
      redis.call('ZREM', key('histories'), sid)
    else
      redis.call('ZADD', key('histories'), int(sweeps().OPEN + NOW), sid)  -- behind those that were not looked at
    end
  end
end

return {make_room = make_room}
