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
  missing[#missing + 1] = queue
  missing[#missing + 1] = booking().book(queue, rooms_left, 0)
end
return {'ok', unpack(missing)}
