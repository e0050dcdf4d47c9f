-- Takes, extends or gives back the lease for suggesting trials of a sweep, and appends suggested rows.
-- A lease that another suggester took over is answered lost, and its rows are ignored.
-- KEYS prefix
-- ARGV {sweep, suggester, token (of its lease; '' to take it), lease_ms (0 gives it back), no_more (why
--      these rows are the last; '' if they are not), first (number of the first row), by (the sampler that
--      made the rows, and why)}, then params and identity of each row
-- Replies: ok | over (no further trials), then token queue tickets ahead (how many trials should wait) rows;
--      held (another suggester has the lease) | lost | behind (others added rows; read them) | known (a trial
--      whose parameters were changed since had these) | unknown

local args = cjson.decode(ARGV[1])
local sid, suggester, token, lease = args.sweep, args.suggester, args.token, tonumber(args.lease_ms)
local no_more, first, by = args.no_more, tonumber(args.first), args.by
local params, ids = sweep_key(sid, 'params'), sweep_key(sid, 'ids')

local s = read_sweep(sid)
local lead = redis.call('HMGET', s.KEY, 'suggester', 'suggest_token')
if not s.queue then return {'unknown'} end
local has_lease = lead[1] == suggester and lead[2] == token
if token ~= '' and not has_lease then return {'lost'} end
if lease == 0 then
  set(s, 'suggest_until', '0')
  save(s)
  return {'over', token, '', 0, 0, 0}
end
if token == '' then
  if lead[1] ~= suggester and tonumber(s.suggest_until or 0) > NOW then return {'held'} end
  if to_come(s) == 0 then return {'over', token, '', 0, 0, 0} end
  token = int((lead[2] or 0) + 1)
  set(s, 'suggest_token', token)
end
set(s, 'suggester', suggester)
set(s, 'suggest_until', int(NOW + lease))
save(s)  -- also if the rows are refused

-- An equal row with the same number was sent twice; any other conflict is another suggester's row.
local last = s.ROWS
local new, n = {}, first
for i = 2, #ARGV, 2 do
  if redis.call('HGET', params, n) ~= ARGV[i] then
    if n ~= last + #new / 2 + 1 then return {'behind'} end
    if redis.call('SISMEMBER', ids, ARGV[i + 1]) == 1 then return {'known'} end
    new[#new + 1], new[#new + 2] = ARGV[i], ARGV[i + 1]
  end
  n = n + 1
end
local limit = to_come(s)
if FULL and #new > 0 then
  return redis.error_reply('OOM the server is at its maxmemory: no further trial is suggested')
end

local want = sweeps().changing(s, function()
  local added = math.min(#new / 2, limit)
  for i = 1, added do
    redis.call('HSET', params, last + i, new[2 * i - 1])
    redis.call('SADD', ids, new[2 * i])
    redis.call('ZADD', sweep_key(sid, 'waiting'), last + i, last + i)
  end
  if added > 0 then
    sweep_event(sid, 'suggested', last + 1, 0, 'count', added, 'by', by)
    if by ~= '' then redis.call('HINCRBY', s.KEY, 'made:' .. by, added) end
  end
  if no_more ~= '' then sweeps().close_search(s, no_more) end
end)
if to_come(s) == 0 then
  set(s, 'suggest_until', '0')
  save(s)
  return {'over', token, want[1], want[2], 0, s.ROWS}
end

-- One trial for each worker that may claim it, at most max_parallel and what fits the budget, but one may wait
-- for running trials to free hours; none while the sweep is paused or held.
local function ahead()
  if s.state ~= 'open' then return 0 end
  local live, cap = 0, tonumber(s.max_parallel) or 0
  for _ in workers().candidates(s) do live = live + 1 end
  if is_set(s.budget_ms) then live = math.min(live, math.max(1, (budget().affordable(s)))) end
  return cap > 0 and math.min(live, cap) or live
end
return {'ok', token, want[1], want[2], ahead(), s.ROWS}
