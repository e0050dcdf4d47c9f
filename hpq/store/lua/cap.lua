-- Sets the run_cap of a sweep. Unclaimed trials beyond the cap are dropped, the last first; if the cap
-- rises, trials that a cap dropped are requeued, the first first.
-- KEYS prefix
-- ARGV sweep, cap (0: none)
-- Replies: ok | unknown | over (the sweep was stopped or cancelled), then queue, tickets, how many trials were
--      dropped, how many were requeued, and how many the sweep has now

local sid, cap = ARGV[1], tonumber(ARGV[2])
local s, waiting, dropped = read_sweep(sid), sweep_key(sid, 'waiting'), sweep_key(sid, 'dropped')
if not s.queue then return {'unknown', '', 0, 0, 0, 0} end
if s.flag == 'stopped' or s.flag == 'cancelled' then return {'over', '', 0, 0, 0, 0} end
is_full()  -- the writes below succeed on a full server
local n_dropped, n_requeued = 0, 0

local function total() return redis.call('HLEN', sweep_key(sid, 'params')) - redis.call('ZCARD', dropped) end

-- The score of a trial that a cap dropped is its number + 0.5; a person's cancel scores the number. One
-- event covers all dropped trials.
local function drop()
  local beyond = redis.call('ZREVRANGEBYSCORE', waiting, '+inf', '(0', 'LIMIT', 0, total() - cap)
  for _, n in ipairs(beyond) do
    redis.call('ZREM', waiting, n)
    redis.call('ZADD', dropped, n + 0.5, n)
  end
  n_dropped = #beyond
end

local function undrop()
  local free, scores = cap == 0 and math.huge or cap - total(), redis.call('ZRANGE', dropped, 0, -1, 'WITHSCORES')
  for i = 1, #scores, 2 do
    local n, score = scores[i], tonumber(scores[i + 1])
    if n_requeued < free and score ~= math.floor(score) then
      redis.call('ZREM', dropped, n)
      redis.call('ZADD', waiting, n, n)
      n_requeued = n_requeued + 1
    end
  end
end

local want = sweeps().changing(s, function()
  if is_set(s.sampler) then set(s, 'run_cap', cap) end
  if cap > 0 and total() > cap then drop() else undrop() end
  sweep_event(sid, 'set', 0, 0, 'run_cap', cap, 'touched', n_dropped + n_requeued)
  sweeps().open(sid)
end)
return {'ok', want[1], want[2], n_dropped, n_requeued, total()}
