-- The workers of a queue, as they describe themselves.

-- The live workers, read once: {name, fields} each. One whose record has another type has no fields.
local live
local function live_workers()
  if live then return live end
  live = {}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key('workers'), int(NOW - FRESH_MS), '+inf')) do
    live[#live + 1] = {name, redis.pcall('HMGET', key('w', name), 'queue', 'state', 'refuses', 'only', 'host',
      'store_id', 'trial', 'drain')}
  end
  return live
end

-- Returns the workers that may claim a sweep's trials: {name, host, idle, store, sweep (it runs)} each.
local function candidates(s)
  local found = {}
  for _, worker in ipairs(live_workers()) do
    local w = worker[2]
    local refuses = string.find(w[3] or '', '"' .. s.SID .. '"', 1, true) or is_set(w[4]) and w[4] ~= s.SID
    if w[1] == s.queue and w[2] ~= 'stopping' and not refuses and not w[8] then
      found[#found + 1] = {name = worker[1], host = w[5], idle = w[2] == 'idle', store = w[6],
        sweep = string.match(w[7] or '', '^[^/]+')}
    end
  end
  return found
end

return {candidates = candidates}
