-- The order of sweeps.

-- Returns the priority level of the pending sweep at an index; a lower level is served first.
local function level_at(queue, index)
  local score = redis.call('ZRANGE', key('q', queue, 'pending'), index, index, 'WITHSCORES')[2]
  return math.floor(tonumber(score or 0) / sweeps().PRIORITY)
end

-- Sorts sweeps of one priority by their owners' running trials; ties stay in order of age.
local function by_owner(same, owner, busy)
  local groups, counts = {}, {}
  for _, sid in ipairs(same) do
    local n = tonumber(busy[owner[sid] or '']) or 0
    if not groups[n] then
      groups[n] = {}
      counts[#counts + 1] = n
    end
    table.insert(groups[n], sid)
  end
  if #counts < 2 then return same end
  table.sort(counts)
  local sorted = {}
  for _, n in ipairs(counts) do
    for _, sid in ipairs(groups[n]) do sorted[#sorted + 1] = sid end
  end
  return sorted
end

-- Returns the pending sweeps of a queue, which are in order of priority and age, in the order of service: by
-- priority, then by the running trials of their owners in the queue, then by age.
local function in_turn(queue, sids)
  local pending = key('q', queue, 'pending')
  if redis.call('HLEN', key('q', queue, 'busy')) < 2 then return sids end
  local busy, owner = read_hash(key('q', queue, 'busy')), read_hash(key('q', queue, 'owners'))
  local from, last, served = 0, level_at(queue, -1), {}
  while from < #sids do
    local upto, level = #sids, level_at(queue, from)
    if level ~= last and math.abs(level) < math.huge then upto = redis.call('ZCOUNT', pending, '-inf', '(' .. int((level + 1) * sweeps().PRIORITY)) end
    if upto <= from then upto = #sids end  -- a score of -inf
    local same = {}
    for i = from + 1, upto do same[#same + 1] = sids[i] end
    for _, sid in ipairs(by_owner(same, owner, busy)) do served[#served + 1] = sid end
    from = upto
  end
  return served
end

return {in_turn = in_turn}
