-- Shared by all scripts: keys, the clock, records and events. KEYS[1] is the prefix; all other keys are built from
-- it as in hpq/store/keys.py (a test compares them). Times are the server's, in integer milliseconds.
-- hpq/store/scripts.py says how the parts of lua/lib are put together.

local P = KEYS[1]

local function key(...) return table.concat({P, ...}, ':') end
local function sweep_key(sid, part) return part and P .. ':s:' .. sid .. ':' .. part or P .. ':s:' .. sid end
local function trial_key(sid, n, part)
  return part and P .. ':t:' .. sid .. '/' .. n .. ':' .. part or P .. ':t:' .. sid .. '/' .. n
end
-- Returns a number as the text of a whole one of 64 bits; another comes from what no script wrote.
local function int(x)
  if not (math.abs(x) < 9e18) then error('a number is not finite, or too large', 0) end
  return string.format('%.0f', x)
end
local function is_set(value) return (value or '') ~= '' end

local MADE = {}  -- the parts of lua/lib that ran, by name

local clock = redis.call('TIME')
local NOW = clock[1] * 1000 + math.floor(clock[2] / 1000)
local NOW_MS = int(NOW)  -- as text

local FRONT = 1000000000  -- the score of a requeued trial is its number minus this, of a retried one minus twice this
local COMING = 1000       -- at most this many trials still to be suggested count
local FRESH_MS = 30000    -- a worker that was silent for longer does not count
local IDLE_MS = 90000     -- an idle one says once a minute that it is idle
local MOST_ENDED = 1000   -- trials that one call ends: about 30 ms
local MOST_DEMAND = 10000 -- entries of the list by which autoscalers read the demand

-- True if another claim owns the attempt of this number: a server that lost its last second, or whose
-- sweep was restored, assigns a number again.
local function is_other_claim(t, nonce) return is_set(t.nonce) and t.nonce ~= nonce end

-- Records: a sweep, a trial or a worker as a table, read once. A field that its hash lacks is nil. Names in
-- capitals are no fields of the hash. `set`, `add` and `unset` change a record, and `save` writes it. Other commands
-- write counts that no script reads first (HINCRBY), and records of which nothing was read.

-- Reads further fields into a record, which has a KEY. What was changed and not saved stays.
local function also(record, ...)
  local fields, values, changes = {...}, redis.call('HMGET', record.KEY, ...), record.CHANGES or {}
  for i, field in ipairs(fields) do
    if changes[field] == nil then record[field] = values[i] or nil end
  end
  return record
end

-- Returns a hash as a table.
local function read_hash(name)
  local flat, found = redis.call('HGETALL', name), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

-- How many trials of a suggested sweep may still be added (at most COMING, also for an open-ended
-- sweep); 0 for any other sweep.
local function to_come(s)
  if not is_set(s.sampler) or is_set(s.no_more) then return 0 end
  local cap = tonumber(s.run_cap) or 0
  if cap == 0 then return COMING end
  return math.max(0, math.min(COMING, cap - s.ROWS))
end

local function is_closed(s) return s.state == 'stopped' or s.state == 'cancelled' end

-- True if a claim must look at an open sweep: trials wait, or may be suggested, and its state and max_parallel let one
-- start; or trials of a closed sweep wait, which the reaper ends. What a budget or an owner's limit allows is not asked
-- here: it changes with the time, and with other sweeps.
local function is_pending(s)
  if is_closed(s) then return s.WAITING > 0 end
  if s.state ~= 'open' then return false end
  local cap = tonumber(s.max_parallel) or 0
  return s.WAITING + to_come(s) > 0 and (cap <= 0 or s.RUNNING < cap)
end

-- Reads a sweep: what decides whether its trials can be claimed, and the fields in `...`.
local function read_sweep(sid, ...)
  local name = sweep_key(sid)
  local f = redis.call('HMGET', name, 'queue', 'owner', 'state', 'why', 'max_parallel', 'sampler', 'budget_ms',
    'may_run', ...)
  local s = {
    KEY = name, SID = sid,
    WAITING = redis.call('ZCARD', name .. ':waiting'), RUNNING = redis.call('ZCARD', name .. ':running'),
    queue = f[1] or nil, owner = f[2] or nil, state = f[3] or nil, why = f[4] or nil, max_parallel = f[5] or nil,
    sampler = f[6] or nil, budget_ms = f[7] or nil, may_run = f[8] or nil,
  }
  for i, field in ipairs({...}) do s[field] = f[8 + i] or nil end
  if is_set(s.budget_ms) then
    also(s, 'until_ms', 'spent_ms', 'useful_ms', 'started_ms', 'gpus', 'near_ms', 'dur_n', 'dur_sum', 'dur_sq',
      'timeout_s')
  end
  if is_set(s.sampler) then
    also(s, 'run_cap', 'no_more', 'suggest_until')
    s.ROWS = redis.call('HLEN', name .. ':params')  -- suggested so far
  end
  s.PENDING = is_pending(s)  -- true while the list of such sweeps has it
  return s
end

-- Reads a trial: what its transitions need, and the fields in `...`. One that was never claimed has no hash.
-- An attempt that has sent nothing yet, the first of its trial, has only some fields.
local function read_trial(sid, n, ...)
  local name = trial_key(sid, n)
  local f = redis.call('HMGET', name, 'state', 'attempt', 'nonce', 'worker', 'host', 'claimed_ms',
    'reaped', 'closed', 'stop', 'seq', 'event_ids', 'charged_ms')
  local t = {
    KEY = name, SID = sid, N = n, state = f[1] or nil, attempt = f[2] or nil, nonce = f[3] or nil,
    worker = f[4] or nil, host = f[5] or nil, claimed_ms = f[6] or nil, reaped = f[7] or nil, closed = f[8] or nil,
    stop = f[9] or nil, seq = f[10] or nil, event_ids = f[11] or nil, charged_ms = f[12] or nil,
  }
  if t.seq or t.attempt ~= '1' or ... then
    also(t, 'resumes', 'checkpoint', 'checkpoint_step', 'artifacts', 'log_bytes', 'again', ...)
  end
  return t
end

-- Sets a field; nil removes it. What a batch sets a thousand times is written once: unpack() is limited.
local function set(record, field, value)
  local changes = record.CHANGES
  if not changes then
    changes = {}
    record.CHANGES = changes
  end
  record[field], changes[field] = value, value or false
end

-- Adds to a whole number.
local function add(record, field, by) set(record, field, int(tonumber(record[field] or 0) + by)) end

-- Removes fields, also those that were not read.
local function unset(record, ...)
  for _, field in ipairs({...}) do set(record, field, nil) end
end

-- Writes the changes of a record, and further fields and values, which the record itself does not get: a change of
-- each would cost more than the write.
local function save(record, ...)
  local changes = record.CHANGES
  if not changes then
    if ... then redis.call('HSET', record.KEY, ...) end
    return
  end
  local new, n, gone, more = {}, 0, {}, {...}
  for field, value in pairs(changes) do
    if value then
      new[n + 1], new[n + 2] = field, value
      n = n + 2
    else
      gone[#gone + 1] = field
    end
  end
  for i = 1, #more do new[n + i] = more[i] end
  record.CHANGES = nil
  if #gone > 0 then redis.call('HDEL', record.KEY, unpack(gone)) end
  if #new > 0 then redis.call('HSET', record.KEY, unpack(new)) end
end

-- Appends to the sweep's events; returns the id.
local function sweep_event(sid, what, n, attempt, ...)
  return redis.call('XADD', sweep_key(sid, 'events'), '*', 'e', what, 'n', n, 'a', attempt, ...)
end

-- Appends an event of a trial. A trial's hash keeps the ids of its own newest ~120 events, so a reader of one trial
-- does not read the events of all others.
local function event(t, what, ...)
  local ids = (t.event_ids or '') .. sweep_event(t.SID, what, t.N, t.attempt, ...) .. ' '
  if #ids > 2000 then ids = string.sub(ids, string.find(ids, ' ', #ids - 2000, true) + 1) end
  set(t, 'event_ids', ids)
end

-- Writes the state of a sweep (open, paused, held, stopped or cancelled) and, of one that is held or that its
-- target stopped, why: an id of hpq/domain/stored_state.py `Cause`, a blank and a text.
local function set_state(s, state, id, text)
  set(s, 'state', state)
  set(s, 'why', id and id .. ' ' .. text or '')
end

-- Returns the id of why a sweep is held or stopped; '' without one.
local function cause(s) return string.match(s.why or '', '^%S*') end

-- Holds an open sweep: no trial starts until a person resumes it, or its budget is raised. True if it was open.
local function hold(s, n, attempt, id, text)
  if s.state ~= 'open' then return false end
  set_state(s, 'held', id, text)
  sweep_event(s.SID, 'held', n, attempt, 'id', id, 'why', text)
  return true
end

-- True if no trial of a sweep waits, runs or may still be added.
local function is_done(s) return s.WAITING + s.RUNNING + to_come(s) == 0 end
