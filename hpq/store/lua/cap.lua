-- How many trials of a sweep there may be (run_cap). Those beyond it that nobody has claimed are dropped, the
-- last first; where it rises, what it had dropped waits again, the first first.
-- KEYS prefix
-- ARGV sweep, cap (0: none)
-- Replies: ok | unknown | over (the sweep was stopped or cancelled), then class, tickets, how many trials it
--      dropped, how many wait again, and how many there are now

local sid, cap = ARGV[1], tonumber(ARGV[2])
local s, waiting, dropped = sweep_key(sid), sweep_key(sid, 'waiting'), sweep_key(sid, 'dropped')
if not is_there(sid) then return {'unknown', '', 0, 0, 0, 0} end
local flag = redis.call('HGET', s, 'flag')
if flag == 'stopped' or flag == 'cancelled' then return {'over', '', 0, 0, 0, 0} end
is_full()  -- goes on all the same
local gone, back = 0, 0

local function there() return redis.call('HLEN', sweep_key(sid, 'params')) - redis.call('ZCARD', dropped) end

-- What a cap dropped lies half a place behind its own, so that it is told from what a person cancelled.
-- The event of the whole says it: there is none for each.
local function drop()
  local beyond = redis.call('ZREVRANGEBYSCORE', waiting, '+inf', '(0', 'LIMIT', 0, there() - cap)
  for _, n in ipairs(beyond) do
    redis.call('ZREM', waiting, n)
    redis.call('ZADD', dropped, n + 0.5, n)
  end
  gone = #beyond
end

local function take_back()
  local room, of = cap == 0 and math.huge or cap - there(), redis.call('ZRANGE', dropped, 0, -1, 'WITHSCORES')
  for i = 1, #of, 2 do
    local n, order = of[i], tonumber(of[i + 1])
    if back < room and order ~= math.floor(order) then
      redis.call('ZREM', dropped, n)
      redis.call('ZADD', waiting, n, n)
      back = back + 1
    end
  end
end

local want = changing(sid, function()
  if (redis.call('HGET', s, 'sampler') or '') ~= '' then redis.call('HSET', s, 'run_cap', cap) end
  if cap > 0 and there() > cap then drop() else take_back() end
  event(sid, 'set', 0, 0, 'run_cap', cap, 'touched', gone + back)
  open(sid)
end)
return {'ok', want[1], want[2], gone, back, there()}
