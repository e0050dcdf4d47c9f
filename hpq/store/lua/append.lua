-- Adds rows to an existing sweep, all at once; a sweep that ended opens again, and its target stops it no more.
-- Sending the call again adds nothing, unless others have added rows 20 times since.
-- KEYS prefix
-- ARGV {sweep, first (number of the first row), varying (JSON list of names), file (JSON of the sweep file that
--      describes the rows; '' for none), outside (numbers of rows outside the sweep's space, a blank after each),
--      call (a word of 16 random digits: rows of two calls may be equal), starts (paths of the checkpoints at which
--      these begin, by the number of their trial)},
--      then row and identity of each trial
-- Replies: ok | unknown | over (a person stopped or cancelled the sweep) | budget (no further trial fits) | behind
--      (others added rows, and these are signed for other numbers) | moved (a checkpoint is no longer that of its
--      trial), then queue (budget: the key that bounds it; moved: the trial's number), tickets

local KEPT_CALLS = 20 * 17  -- bytes: the words of the newest 20 calls, a blank after each

local args = cjson.decode(ARGV[1])
local sid, first, count = args.sweep, tonumber(args.first), (#ARGV - 1) / 2
local params = sweep_key(sid, 'params')
local s = read_sweep(sid, 'outside', 'varying', 'last_added')
if not s.queue then return {'unknown', '', 0} end

local function all_varying()
  -- another call may have made further parameters vary
  local names, known = cjson.decode(is_set(s.varying) and s.varying or '[]'), {}
  for _, name in ipairs(names) do known[name] = true end
  for _, name in ipairs(cjson.decode(args.varying)) do
    if not known[name] then names[#names + 1] = name end
  end
  return #names > 0 and cjson.encode(names) or '[]'
end

local calls = s.last_added or ''
if string.find(calls, args.call, 1, true) then return {'ok', s.queue, tickets(s)} end
if is_closed(s) and cause(s) ~= 'target' then return {'over', '', 0} end
local bound = is_set(s.budget_ms) and budget().exceeded(s) or ''
if bound ~= '' then return {'budget', bound, 0} end
if redis.call('HLEN', params) ~= first - 1 then return {'behind', '', 0} end
for other, path in pairs(args.starts) do
  local pointer = cjson.decode(redis.call('HGET', trial_key(sid, other), 'checkpoint') or '{}')
  if pointer.path ~= path then return {'moved', other, 0} end
end

local want = sweeps().changing(s, function()
  for i = 1, count do
    local n = first + i - 1
    redis.call('SADD', sweep_key(sid, 'ids'), ARGV[2 * i + 1])
    redis.call('HSET', params, n, ARGV[2 * i])
    redis.call('ZADD', sweep_key(sid, 'waiting'), n, n)
  end
  sweep_event(sid, 'added', first, 0, 'count', count)
  set(s, 'varying', all_varying())
  set(s, 'last_added', string.sub(args.call .. ' ' .. calls, 1, KEPT_CALLS))
  if args.file ~= '' then set(s, 'file:' .. first, NOW_MS .. ' ' .. count .. ' ' .. args.file) end
  for other, path in pairs(args.starts) do  -- hpq/store/file_garbage.py keeps these
    local known = redis.call('HGET', trial_key(sid, other), 'starts') or ''
    if not string.find(known, path .. '\n', 1, true) then
      redis.call('HSET', trial_key(sid, other), 'starts', known .. path .. '\n')
    end
  end
  if args.outside ~= '' then set(s, 'outside', (s.outside or '') .. args.outside) end
  -- A search suggests as many trials as without these.
  if is_set(s.sampler) and tonumber(s.run_cap or 0) > 0 then add(s, 'run_cap', count) end
  if is_closed(s) then set_state(s, 'open') end
  sweeps().open(s)
end)
return {'ok', want[1], want[2]}
