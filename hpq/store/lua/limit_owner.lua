-- Sets limits of an owner, and corrects the demand of all queues by them.
-- KEYS prefix
-- ARGV owner ('*': all without an own value), then names and values of limits ('' removes one)
-- Replies: ok, then queue and tickets pairs

for i = 2, #ARGV, 2 do
  local field, value = ARGV[1] .. '/' .. ARGV[i], ARGV[i + 1]
  if value == '' then
    redis.call('HDEL', P .. '.limits', field)
  else
    redis.call('HSET', P .. '.limits', field, value)
  end
end

-- No worker may live that would correct it.
local missing, rooms_left = {}, {}
for _, queue in ipairs(owners().queues()) do
  missing[#missing + 1] = queue
  missing[#missing + 1] = booking().book(queue, rooms_left, 0)
end
return {'ok', unpack(missing)}
