-- Sets limits of an owner, removes others, and corrects the demand of all queues by them.
-- KEYS prefix
-- ARGV {owner ('*': all without an own value), gone (list of the names that are removed)}, then names and
--      values of limits
-- Replies: ok, then queue and tickets pairs

local args = cjson.decode(ARGV[1])
for _, name in ipairs(args.gone) do redis.call('HDEL', P .. '.limits', args.owner .. '/' .. name) end
for i = 2, #ARGV, 2 do redis.call('HSET', P .. '.limits', args.owner .. '/' .. ARGV[i], ARGV[i + 1]) end

-- No worker may live that would correct it.
local missing, rooms_left = {}, {}
for _, queue in ipairs(owners().queues()) do
  local want = 0
  for _, sid in ipairs(redis.call('ZRANGE', key('q', queue, 'open'), 0, -1)) do
    sweeps().guarded(sid, function()
      local s = read_sweep(sid, 'priority')
      local before = demand(s)
      owners().share(s, rooms_left)
      settle(s, before)
      want = want + useful_tickets(s)
    end)
  end
  missing[#missing + 1] = queue
  missing[#missing + 1] = lacking(queue, want)
end
return {'ok', unpack(missing)}
