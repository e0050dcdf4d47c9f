-- Sets the run_cap of a sweep. Unclaimed trials beyond the cap are dropped, the last first; if the cap
-- rises, trials that a cap dropped are requeued, the first first. A call moves a part of many.
-- KEYS prefix
-- ARGV sweep, cap (0: none), next (of the reply before; '-inf' at first)
-- Replies: ok | unknown | over (the sweep was stopped or cancelled), then queue, tickets, how many trials were
--      dropped, how many were requeued, how many the sweep has now, and next ('' if this was all)

local sid, cap, after = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local s, waiting, dropped = read_sweep(sid), sweep_key(sid, 'waiting'), sweep_key(sid, 'dropped')
if not s.queue then return {'unknown', '', 0, 0, 0, 0, ''} end
if is_closed(s) then return {'over', '', 0, 0, 0, 0, ''} end
local n_dropped, n_requeued, next_ = 0, 0, ''
local MOST = ends().MOST_MOVED

local function total() return redis.call('HLEN', sweep_key(sid, 'params')) - redis.call('ZCARD', dropped) end

-- The score of a trial that a cap dropped is its number + 0.5; a person's cancel scores the number. One
-- event covers all trials of a call.
local function drop()
  local beyond, moved = math.min(MOST, total() - cap), {}
  for i, n in ipairs(redis.call('ZREVRANGEBYSCORE', waiting, '+inf', '(0', 'LIMIT', 0, beyond)) do
    moved[2 * i - 1], moved[2 * i] = n, n + 0.5
  end
  ends().move(waiting, dropped, moved)
  n_dropped = #moved / 2
  if n_dropped == MOST and total() > cap then next_ = after end
end

local function undrop()
  local free, moved = cap == 0 and math.huge or cap - total(), {}
  local from = after == '-inf' and after or '(' .. after
  local some = redis.call('ZRANGEBYSCORE', dropped, from, '+inf', 'WITHSCORES', 'LIMIT', 0, MOST)
  for i = 1, #some, 2 do
    local n, score = some[i], tonumber(some[i + 1])
    if #moved / 2 < free and score ~= math.floor(score) then moved[#moved + 1], moved[#moved + 2] = n, n end
  end
  ends().move(dropped, waiting, moved)
  n_requeued = #moved / 2
  if #some == 2 * MOST and n_requeued < free then next_ = some[#some] end
end

local want = sweeps().changing(s, function()
  if is_set(s.sampler) then set(s, 'run_cap', cap) end
  if cap > 0 and total() > cap then drop() else undrop() end
  if after == '-inf' or n_dropped + n_requeued > 0 then
    sweep_event(sid, 'set', 0, 0, 'run_cap', cap, 'touched', n_dropped + n_requeued)
  end
  sweeps().open(s)
end)
return {'ok', want[1], want[2], n_dropped, n_requeued, total(), next_}
