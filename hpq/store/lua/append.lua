-- Adds staged rows to an existing sweep, all at once. Sending the call again adds nothing: the sweep's hash
-- has the appended file under the stage's id.
-- KEYS prefix
-- ARGV {sweep, stage, first (number of the first row), count (of staged rows; each is 16 bytes of identity,
--      then parameters), file (JSON), varying (JSON list of names), digest (of the sweep that the file
--      describes)}
-- Replies: ok | unknown | over (the sweep was stopped or cancelled) | torn (staged rows are missing) | behind
--      (others added rows, and these are signed for other numbers), then queue, tickets, how many rows were
--      added

local args = cjson.decode(ARGV[1])
local sid, stage, count = args.sweep, args.stage, tonumber(args.count)
local params, staged, appended = sweep_key(sid, 'params'), sweep_key(stage, 'staged'), 'file:' .. stage
local s = read_sweep(sid)
if not s.queue then return {'unknown', '', 0, 0} end
local before = redis.call('HGET', s.KEY, appended)
if before then  -- the same call, sent twice
  return {'ok', s.queue, tickets(s), tonumber(string.match(before, '^%d+ (%d+) '))}
end
if s.flag == 'stopped' or s.flag == 'cancelled' then return {'over', '', 0, 0} end
if redis.call('HLEN', staged) ~= count then return {'torn', '', 0, 0} end

local first = tonumber(args.first)
if redis.call('HLEN', params) ~= first - 1 then
  redis.call('DEL', staged)
  return {'behind', '', 0, 0}
end

local function add()
  for i = 1, count do
    local row, n = redis.call('HGET', staged, i), first + i - 1
    redis.call('SADD', sweep_key(sid, 'ids'), string.sub(row, 1, 16))
    redis.call('HSET', params, n, string.sub(row, 17))
    redis.call('ZADD', sweep_key(sid, 'waiting'), n, n)
  end
  if count > 0 then sweep_event(sid, 'added', 0, 0, 'count', count) end
end

local want = sweeps().changing(s, function()
  add()
  set(s, 'varying', args.varying)
  set(s, appended, NOW_MS .. ' ' .. count .. ' ' .. args.file)
  redis.call('HSETNX', key('digests'), args.digest, sid)
  sweeps().open(s)
end)
redis.call('DEL', staged)
return {'ok', want[1], want[2], count}
