-- Adds rows to an existing sweep, all at once; a sweep that ended opens again. Sending the call again adds nothing:
-- its rows are at their numbers.
-- KEYS prefix
-- ARGV {sweep, first (number of the first row), varying (JSON list of names), file (JSON of the sweep file that
--      describes the rows; '' for none), outside (numbers of rows outside the sweep's space, a blank after each)},
--      then row and identity of each trial
-- Replies: ok | unknown | over (a person stopped or cancelled the sweep) | budget (no further trial fits) | behind
--      (others added rows, and these are signed for other numbers), then queue (budget: the key that bounds it), tickets

local args = cjson.decode(ARGV[1])
local sid, first, count = args.sweep, tonumber(args.first), (#ARGV - 1) / 2
local params = sweep_key(sid, 'params')
local s = read_sweep(sid, 'reached', 'outside')
if not s.queue then return {'unknown', '', 0} end

local function was_sent_before()
  for i = 1, count do
    if redis.call('HGET', params, first + i - 1) ~= ARGV[2 * i] then return false end
  end
  return true
end
if was_sent_before() then return {'ok', s.queue, tickets(s)} end
if s.flag == 'cancelled' or s.flag == 'stopped' and not is_set(s.reached) then return {'over', '', 0} end
if is_set(s.budget_ms) then
  local fits, bound = affordable(s)
  if fits < 1 then return {'budget', bound, 0} end
end
if redis.call('HLEN', params) ~= first - 1 then return {'behind', '', 0} end

local want = sweeps().changing(s, function()
  for i = 1, count do
    local n = first + i - 1
    redis.call('SADD', sweep_key(sid, 'ids'), ARGV[2 * i + 1])
    redis.call('HSET', params, n, ARGV[2 * i])
    redis.call('ZADD', sweep_key(sid, 'waiting'), n, n)
  end
  sweep_event(sid, 'added', first, 0, 'count', count)
  set(s, 'varying', args.varying)
  if args.file ~= '' then set(s, 'file:' .. first, NOW_MS .. ' ' .. count .. ' ' .. args.file) end
  if args.outside ~= '' then set(s, 'outside', (s.outside or '') .. args.outside) end
  -- A search suggests as many trials as without these.
  if is_set(s.sampler) and tonumber(s.run_cap or 0) > 0 then add(s, 'run_cap', count) end
  if is_set(s.reached) then
    set(s, 'reached', '')
    set(s, 'flag', '')
  end
  sweeps().open(s)
end)
return {'ok', want[1], want[2]}
