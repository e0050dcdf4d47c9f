-- The workers of a queue, as they describe themselves. Each is read once, and only when it is asked for: one of
-- hundreds mostly answers what a call asks.

local names         -- of the live workers
local records = {}  -- by name; one of another type has no fields

local function live_names()
  names = names or redis.call('ZRANGEBYSCORE', key('workers'), int(NOW - FRESH_MS), '+inf')
  return names
end

-- Returns a live worker if it may claim a sweep's trials: {name, host, idle, store, sweep (it runs)}.
local function candidate(s, name)
  records[name] = records[name] or redis.pcall('HMGET', key('w', name), 'queue', 'state', 'refuses', 'only', 'host',
    'store_id', 'trial', 'drain')
  local w = records[name]
  local refuses = string.find(w[3] or '', '"' .. s.SID .. '"', 1, true) or is_set(w[4]) and w[4] ~= s.SID
  if w[1] ~= s.queue or w[2] == 'stopping' or refuses or w[8] then return nil end
  return {name = name, host = w[5], idle = w[2] == 'idle', store = w[6], sweep = string.match(w[7] or '', '^[^/]+')}
end

-- Iterates over the workers that may claim a sweep's trials.
local function candidates(s)
  local i = 0
  return function()
    while live_names()[i + 1] do
      i = i + 1
      local found = candidate(s, live_names()[i])
      if found then return found end
    end
  end
end

-- Returns the worker of a name if it lives and may claim a sweep's trials.
local function live_candidate(s, name)
  local seen = tonumber(redis.call('ZSCORE', key('workers'), name) or 0)
  return seen >= NOW - FRESH_MS and candidate(s, name) or nil
end

return {candidates = candidates, live_candidate = live_candidate}
