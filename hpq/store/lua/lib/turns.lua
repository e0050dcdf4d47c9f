-- Whose turn it is. hpq/store/scripts.py puts this text before the script that needs it.

-- How many priorities lie between the sweep at a place of the open ones and the first of all.
local function priority_at(class, place)
  local at = redis.call('ZRANGE', key('c', class, 'open'), place, place, 'WITHSCORES')[2]
  return math.floor(tonumber(at or 0) / PRIORITY)
end

-- Sweeps of one priority, older ones first: those of the owner with the fewest running trials first.
local function by_owner(sweeps, owner, busy)
  local groups, counts = {}, {}
  for _, sid in ipairs(sweeps) do
    local n = tonumber(busy[owner[sid] or ''] or 0)
    if not groups[n] then
      groups[n] = {}
      counts[#counts + 1] = n
    end
    table.insert(groups[n], sid)
  end
  if #counts < 2 then return sweeps end
  table.sort(counts)
  local sorted = {}
  for _, n in ipairs(counts) do
    for _, sid in ipairs(groups[n]) do sorted[#sorted + 1] = sid end
  end
  return sorted
end

-- What HGETALL answers, as a table.
local function read_hash(name)
  local flat, found = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

-- The open sweeps of a class in the order in which they are served: by priority; within one, by how
-- many trials of their owners run in the class; then the older ones first.
local function in_turn(class)
  local open = key('c', class, 'open')
  local sweeps = redis.call('ZRANGE', open, 0, -1)
  if #sweeps < 2 or redis.call('HLEN', key('c', class, 'busy')) < 2 then return sweeps end
  local busy, owner = read_hash(key('c', class, 'busy')), read_hash(key('c', class, 'owners'))
  local from, last, served = 0, priority_at(class, -1), {}
  while from < #sweeps do
    local upto, this = #sweeps, priority_at(class, from)
    if this ~= last then upto = redis.call('ZCOUNT', open, '-inf', '(' .. int((this + 1) * PRIORITY)) end
    local same = {}
    for i = from + 1, upto do same[#same + 1] = sweeps[i] end
    for _, sid in ipairs(by_owner(same, owner, busy)) do served[#served + 1] = sid end
    from = upto
  end
  return served
end
