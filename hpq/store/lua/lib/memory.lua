-- Whether the server was at its maxmemory when the script began: it refuses only the first write of a script that
-- may need memory, and never ZREM. A script with this part begins with such a write, so that none of its own is
-- refused. Neither write changes anything.

local function is_full()
  local answer = redis.pcall('ZADD', key('leases'), 'XX', 0, '')
  local is_refused = type(answer) == 'table' and answer.err ~= nil and string.find(answer.err, 'OOM', 1, true) ~= nil
  if is_refused then redis.call('ZREM', key('leases'), '') end
  return is_refused
end

local FULL = is_full()
