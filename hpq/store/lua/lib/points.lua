-- A trial's points.

-- While a trial may run, each metric has a stream of points, whose entries readers follow. When the trial
-- ends, they move into one hash, P:t:S/N:points, since Redis reserves 4 kB for a stream of one entry.
-- hpq/store/wire/trial.py describes the fields of that hash, and decodes them.
-- Two more fields have what the latest attempt used of its machine over time, and the log (lib/reports.lua);
-- no metric can have their names.
local USAGE, LOG = '#usage', '#log'

-- Returns the names of the metrics that a trial has points of.
local function metrics(t)
  local names = {}
  for _, field in ipairs(redis.call('HKEYS', t)) do
    if string.sub(field, 1, 2) == 'm:' then names[#names + 1] = string.sub(field, 3) end
  end
  return names
end

-- Resets a trial's values for early termination to the first `logged` ones, whose best is `best`.
local function rewind(t, logged, best)
  also(t, 'logged', 'logged_at', 'best_before')
  if not t.logged then return end
  for band in string.gmatch(redis.call('HGET', sweep_key(t.SID), 'bands') or '', '%d+') do
    if tonumber(band) > logged then redis.call('ZREM', sweep_key(t.SID, 'band:' .. band), t.N) end
  end
  set(t, 'logged', int(logged))
  set(t, 'best', best)
  unset(t, 'logged_at', 'best_before')
end

-- Resets a trial's values for early termination to those of its checkpoint.
local function rewind_to_checkpoint(t)
  also(t, 'checkpoint', 'logged')
  local checkpoint = cjson.decode(t.checkpoint or '{}')
  -- An attempt since that checkpoint may have restarted and logged less.
  local logged = math.min(tonumber(checkpoint.logged) or 0, tonumber(t.logged or 0))
  rewind(t, logged, tonumber(checkpoint.best) and checkpoint.best or '')
end

-- Removes the newest entries of a stream of points while their steps are at least `step`; returns how many.
local function cut(stream, step)
  local removed = 0
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  while newest and tonumber(newest[2][2]) >= step do
    removed = removed + redis.call('XDEL', stream, newest[1])
    newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  end
  return removed
end

-- Removes what a trial reported after a step, and the last values of metrics that have no others.
local function forget_after(t, step)
  rewind_to_checkpoint(t)
  for _, name in ipairs(metrics(t.KEY)) do
    local stream = trial_key(t.SID, t.N, 'p:' .. name)
    local removed = cut(stream, step + 1)
    local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    if newest then
      set(t, 'm:' .. name, newest[2][4])
    elseif removed > 0 then
      unset(t, 'm:' .. name)
    end
  end
end

-- Removes everything that a trial reported, but not what it printed.
local function forget_points(t)
  local record = trial_key(t.SID, t.N, 'points')
  local gone, fields = {record}, {}
  rewind(t, 0, '')
  for i, name in ipairs(metrics(t.KEY)) do
    gone[i + 1], fields[i] = trial_key(t.SID, t.N, 'p:' .. name), 'm:' .. name
  end
  if #fields == 0 then return end
  local log = redis.call('HGET', record, LOG)
  redis.call('DEL', unpack(gone))
  if log then redis.call('HSET', record, LOG, log) end
  unset(t, unpack(fields))
end

local MOST_POINTS = 1000  -- of a metric, unless a trial has many; a longer curve is thinned

-- Removes at least a quarter of a stream: what is nearer in steps to the point before than a distance that
-- doubles. Removing every second point would thin the beginning each time again, and lose it.
local function thin(points, most)
  local all, gone = redis.call('XRANGE', points, '-', '+'), {}
  local function step(i) return tonumber(all[i][2][2]) end
  local apart = math.max(1, math.abs(step(#all) - step(#all - 1)))
  while #gone < most / 4 and apart < 2 ^ 60 do  -- no distance is greater, unless a step is no number
    local kept = step(1)
    apart, gone = 2 * apart, {}
    for i = 2, #all - 1 do
      if math.abs(step(i) - kept) < apart then gone[#gone + 1] = all[i][1] else kept = step(i) end
    end
  end
  if #gone > 0 then redis.call('XDEL', points, unpack(gone)) end
end

-- Appends a point to the stream of its metric. The metrics of one report get the same id: the record has
-- equal ids once.
local seqs = {}
local function add_point(points, step, value, most)
  local seq = seqs[points] or 0
  seqs[points] = seq + 1
  local id = redis.pcall('XADD', points, NOW_MS .. '-' .. seq, 's', step, 'v', value)
  if type(id) == 'table' then  -- a second call in this millisecond, or the clock was put back
    redis.call('XADD', points, '*', 's', step, 'v', value)
  end
  most = tonumber(most or MOST_POINTS)
  if redis.call('XLEN', points) > most then thin(points, most) end
end

local function pack(letter, list) return struct.pack('<' .. string.rep(letter, #list), unpack(list)) end

-- Encodes the ids and steps of rows {ms, seq, step, value}: their number, the first ms, the types of the
-- three columns, and the columns. A column has the differences from row to row in the narrowest type, as
-- runs of equal ones, since most are: it depends little on how a trial's points met the beats. Or it has
-- the numbers as doubles if they are far apart.
local function encode_ids(rows)
  if #rows == 1 then
    local row = rows[1]
    return struct.pack('<Hdc3HHbdd', 1, row[1], 'bdd', 1, 1, 0, row[2], row[3])
  end
  local types, columns = '', ''
  for k = 1, 3 do
    local numbers, rises, lengths, before, most = {}, {}, {}, k == 1 and rows[1][1] or 0, 0
    for i, row in ipairs(rows) do
      local rise = row[k] - before
      if rise ~= rises[#rises] then rises[#rises + 1], lengths[#lengths + 1] = rise, 0 end
      lengths[#lengths] = lengths[#lengths] + 1
      numbers[i], before = row[k], row[k]
      most = math.max(most, rise, -1 - rise)
    end
    local letter = most < 128 and 'b' or most < 32768 and 'h' or most < 2147483648 and 'i' or 'd'
    types = types .. letter
    columns = columns .. (letter == 'd' and pack('d', numbers)
      or struct.pack('<H', #rises) .. pack('H', lengths) .. pack(letter, rises))
  end
  return struct.pack('<Hdc3', #rows, rows[1][1], types) .. columns
end

-- Encodes the values of rows without a loss: as places in a list of the different ones if these are few,
-- as floats if all are floats, else as doubles.
local function encode_values(rows)
  if #rows == 1 then return 'd' .. struct.pack('<d', tonumber(rows[1][4]) or 0/0) end
  local values, different, place_of, places = {}, {}, {}, {}
  for i, row in ipairs(rows) do
    local text = row[4]
    values[i] = tonumber(text) or 0/0
    if not place_of[text] then
      place_of[text] = #different
      different[#different + 1] = values[i]
    end
    places[i] = place_of[text]
  end
  if #different < 256 and 8 * #different < 3 * #values then
    return 'B' .. string.char(#different) .. pack('d', different) .. pack('B', places)
  end
  local floats = pack('f', values)
  local rounded = {struct.unpack('<' .. string.rep('f', #values), floats)}
  for i, x in ipairs(values) do
    if x == x and x ~= rounded[i] then return 'd' .. pack('d', values) end
  end
  return 'f' .. floats
end

-- Keeps what an attempt has used of its machine so far: its number, then what the worker sent.
local function keep_usage(t, text)
  redis.call('HSET', trial_key(t.SID, t.N, 'points'), USAGE, t.attempt .. '\n' .. text)
end

-- Moves the points of a trial that ends from their streams into its record, behind those that an ended
-- attempt has left there. `last`: step, metric and value of each point that no stream has, in an attempt
-- that began anew; `names`: the metrics with streams, if the caller knows them ({} only for an attempt that
-- began anew and has sent no point).
local function pack_points(t, last, names)
  local record, order, rows_of, gone = trial_key(t.SID, t.N, 'points'), {}, {}, {}
  local function rows_named(name)
    if not rows_of[name] then order[#order + 1], rows_of[name] = name, {} end
    return rows_of[name]
  end
  for i, name in ipairs(names or metrics(t.KEY)) do
    gone[i] = trial_key(t.SID, t.N, 'p:' .. name)
    for j, entry in ipairs(redis.call('XRANGE', gone[i], '-', '+')) do
      local ms, seq = string.match(entry[1], '(%d+)-(%d+)')
      rows_named(name)[j] = {tonumber(ms), tonumber(seq), tonumber(entry[2][2]) or 0, entry[2][4] or ''}
    end
  end
  for i = 1, #(last or ''), 3 do
    local rows = rows_named(last[i + 1])
    local newest = rows[#rows] or {0, 0}
    local seq = newest[1] < NOW and 0 or newest[2] + 1
    rows[#rows + 1] = {math.max(NOW, newest[1]), seq, tonumber(last[i]), last[i + 2]}
  end
  local is_again = #gone > 0 and t.attempt ~= '1'
    and redis.call('HLEN', record) > redis.call('HEXISTS', record, USAGE) + redis.call('HEXISTS', record, LOG)
  local ids, uses, common, fields = {}, {}, '', {}
  for i, name in ipairs(order) do
    while #rows_of[name] > MOST_POINTS do
      local kept = {}
      for j, row in ipairs(rows_of[name]) do
        if j % 2 == 1 or j == #rows_of[name] then kept[#kept + 1] = row end
      end
      rows_of[name] = kept
    end
    ids[i] = encode_ids(rows_of[name])
    uses[ids[i]] = (uses[ids[i]] or 0) + 1
    if uses[ids[i]] == 2 and common == '' and not is_again then common, fields = ids[i], {'', ids[i]} end
  end
  for i, name in ipairs(order) do
    local before = is_again and redis.call('HGET', record, name) or ''
    fields[#fields + 1] = name
    fields[#fields + 1] = before .. (ids[i] == common and '=' or '+' .. ids[i]) .. encode_values(rows_of[name])
  end
  if #gone > 0 then redis.call('DEL', unpack(gone)) end
  if #order > 0 then redis.call('HSET', record, unpack(fields)) end
end

return {LOG = LOG, metrics = metrics, rewind = rewind, rewind_to_checkpoint = rewind_to_checkpoint, cut = cut,
  forget = forget_points, forget_after = forget_after, add = add_point, keep_usage = keep_usage, pack = pack_points}
