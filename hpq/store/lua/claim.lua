-- Claims the next trial of a worker's queue: by the sweep's priority, then by the owner with the fewest
-- running trials, then by the sweep's age; within a sweep requeued trials first, then by number, then retried ones.
-- A repeated call with the same nonce gets the same claim, with the checkpoint and `unfed` of that moment.
-- Operators' limits of the owner are applied here (lib/owners.lua).
-- KEYS prefix
-- ARGV {queue, worker, host, nonce, lease_ms, provenance (digest of what its attempts run on),
--      skip (list of sweeps), only (the one sweep that may be claimed; '' for any), no_starts (skip trials that
--      begin at the checkpoint of another one; optional), gpus (of a trial here; optional: 1), left_ms (until this
--      worker is stopped; optional)}
-- Replies: trial sweep number attempt params checkpoint ('' for none), how many earlier attempts never
--      began, the sweep's created_ms, signature, timeout_s and stall_s, unfed | empty, short (a sweep whose
--      waiting trials need more time than is left; '' for none), unfed (a sweep that lacks a suggester; '' for
--      none) | drained (a person stopped this worker from claiming)

local args = cjson.decode(ARGV[1])
local queue, worker, host, nonce = args.queue, args.worker, args.host, args.nonce
local lease, provenance, skip = tonumber(args.lease_ms), args.provenance, {}
for _, sid in ipairs(args.skip) do skip[sid] = true end
local gpus = args.gpus or '1'
local left = tonumber(args.left_ms)
local short, unfed = '', ''
local BRIEF_MS = 10000  -- the next run of the reaper gives each idle worker a ticket

local w = also({KEY = key('w', worker)}, 'queue', 'nonce', 'claim', 'store_id', 'drain', 'state')
local FIELDS = {'created_ms', 'signature', 'timeout_s', 'stall_s', 'priority'}  -- of a sweep, beside read_sweep's

local function read_row(s, n) return redis.call('HGET', sweep_key(s.SID, 'params'), n) or '' end

local function answer(s, t, row)
  local checkpoint = t.checkpoint or ''
  if lacks_suggester(s) then unfed = s.SID end
  return {'trial', s.SID, t.N, t.attempt, row, checkpoint, t.unbegun or '0', s.created_ms or '', s.signature or '',
    s.timeout_s or '', s.stall_s or '', unfed}
end

-- What the next run must have if one of `least` ms was cut off: two allocations of one length begin a little
-- differently.
local function longer(least) return 1.1 * (least or 0) end

-- True if a trial that begins now is expected to outlast this worker, or a run of `least` ms was cut off.
local function is_too_long(s, least)
  if not left or not (s.IS_SHORT or longer(least) > left) then return false end
  short = s.SID
  return true
end

-- True if another worker that may claim from a sweep passes a test, which is named: each is made once, however many
-- trials wait. `first` is asked first.
local answers = {}
local function has_other(s, name, test, first)
  local id = s.SID .. ' ' .. name
  if answers[id] == nil then
    local one = first and workers().live_candidate(s, first)
    local is_found = one and one.name ~= worker and test(one) or false
    for other in workers().candidates(s) do
      if is_found then break end
      is_found = other.name ~= worker and test(other)
    end
    answers[id] = is_found
  end
  return answers[id]
end

local function is_far(other) return other.host ~= host end
local function is_idle(other) return other.idle end

-- Returns the JSON of a row if its trial begins at the checkpoint of another one (hpq/store/wire/row.py).
local function text_with_start(row)
  local text = (string.byte(row) or 0) < 128 and row or string.sub(row, 17)  -- behind its signature
  return string.sub(text, 1, 1) == '[' and text or nil
end

-- Says why a trial that waits should not begin on this worker now; nil if it should.
local function refusal(s, n)
  if args.no_starts and text_with_start(read_row(s, n)) then return 'a worker should load its checkpoint' end
  local f = redis.call('HMGET', trial_key(s.SID, n), 'avoid', 'avoid_ms', 'worker', 'checkpoint', 'least_ms')
  local avoid, waited, before, checkpoint, least = f[1], NOW - tonumber(f[2] or 0), f[3], f[4], f[5]
  local store = checkpoint and files().store_of(checkpoint)
  if store and store ~= w.store_id then
    local function has_store(other) return other.store == store end
    if has_other(s, 'store ' .. store, has_store, before) then
      return 'another worker, however busy, has the store of its checkpoint'
    end
  end
  if not checkpoint and is_too_long(s, least) then return 'it would outlast this worker' end
  if avoid ~= host or waited > 2 * FRESH_MS then return end
  if has_other(s, 'far', is_far) then return 'another host should try it' end
  -- Briefly only, since that worker may be busy by then.
  if before == worker and waited < BRIEF_MS and has_other(s, 'idle', is_idle) then
    return 'an idle worker should try it'
  end
end

-- The scores of trials that wait, in the order in which they are claimed, and how many of each are looked at.
local REQUEUED, RETRIED = {int(1 - FRONT), 0, 100}, {'-inf', int(-FRONT), 100}
local NEW = {'(0', '+inf', args.no_starts and 100 or 1}

-- Returns the next trial of a sweep, or nil.
local function pick(s)
  local waiting = sweep_key(s.SID, 'waiting')
  local first = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
  if not first[1] then return end
  if tonumber(first[2]) > 0 then  -- all are new
    if is_too_long(s) then return end
    if not args.no_starts then return first[1] end
  end
  for _, scores in ipairs({REQUEUED, NEW, RETRIED}) do
    local from, to, most = unpack(scores)
    for _, n in ipairs(redis.call('ZRANGEBYSCORE', waiting, from, to, 'LIMIT', 0, most)) do
      if not refusal(s, n) then return n end
    end
  end
end

-- Clears what earlier attempts left, and returns the trial's record. Without a checkpoint training starts
-- from the beginning, so the points of earlier attempts are removed here; with one, `beat` removes them
-- when this attempt reports the same steps.
local function clear_earlier_attempt(sid, n)
  local t = read_trial(sid, n, 'unbegun')
  if not t.checkpoint_step then
    points().forget(t)
  else
    points().rewind_to_checkpoint(t)
  end
  add_attempt_time(t)
  unset(t, 'stop', 'reaped', 'closed', 'avoid', 'avoid_ms', 'kind', 'error', 'fingerprint',
    'objective', 'ended_ms', 'phase', 'step', 'seq', 'artifacts', 'restarted', 'resumes', 'checkpoints', 'pruning',
    'gone', 'thinned', 'best_value', 'run_info', 'gpus')
  if t.checkpoint_step then
    set(t, 'step', t.checkpoint_step)
    set(t, 'resumes', '\n')
  end
  if not t.attempt then set(t, 'seq', '0') end  -- another client wrote the record: its end reads it whole
  return t
end

-- Returns fields of a trial that begins at the checkpoint of another one, until it has its own: its row says which.
-- With `seq` its first attempt is read whole. A row that cannot be read is the worker's to refuse.
local function start_of(row)
  local text = text_with_start(row)
  if not text then return nil end
  local is_read, fields = pcall(function()
    local checkpoint = cjson.decode(text)[3]
    local at = cjson.decode(checkpoint)
    return {checkpoint = checkpoint, checkpoint_step = int(at.step), step = int(at.step), logged = int(at.logged),
      seq = '0'}
  end)
  return is_read and fields or nil
end

local function claim(s, n)
  local name, before, row = trial_key(s.SID, n), demand(s), read_row(s, n)
  local t = {KEY = name}
  if redis.call('EXISTS', name) == 1 then t = clear_earlier_attempt(s.SID, n) end
  t.SID, t.N = s.SID, n
  add(t, 'attempt', 1)
  for field, value in pairs(not t.checkpoint and start_of(row) or {}) do set(t, field, value) end
  local from = t.checkpoint_step and {'from', t.checkpoint_step} or {}
  if gpus ~= '1' then set(t, 'gpus', gpus) end
  if owners().exist() then set(t, 'charged_ms', NOW_MS) end
  enter_running(s, t, NOW_MS)  -- what fails on a damaged record has failed by now
  redis.call('ZADD', key('leases'), int(NOW + lease), s.SID .. '/' .. n)
  event(t, 'claimed', 'worker', worker, 'host', host, 'provenance', provenance, unpack(from))
  save(t, 'state', 'running', 'worker', worker, 'host', host, 'claimed_ms', NOW_MS, 'beat_ms', NOW_MS,
    'provenance', provenance, 'nonce', nonce)
  update_queue(s, before)
  if w.state ~= 'busy' then redis.call('ZREM', key('q', queue, 'idle'), worker) end
  local trial = s.SID .. '/' .. n
  save(w, 'nonce', nonce, 'claim', trial .. '/' .. t.attempt, 'state', 'busy', 'trial', trial)
  if not w.queue then redis.call('PEXPIRE', w.KEY, 3 * lease) end  -- else `presence` gave it its time
  if provenance ~= '' and redis.call('SADD', sweep_key(s.SID, 'ran_on'), provenance) == 1 then
    sharing().add_ran_on(provenance)
  end
  return answer(s, t, row)
end

local function claim_from(sid)
  local s = read_sweep(sid, unpack(FIELDS))
  if s.queue ~= queue then return end  -- `only` may name a sweep of another queue, or none
  -- Once held, it stays so for all workers.
  if is_set(s.budget_ms) and s.state == 'open' and tonumber(s.gpus or 1) ~= tonumber(gpus) then
    set(s, 'gpus', gpus)
    save(s)
  end
  if claimable(s) == 0 then return end
  if not owners().allow(s) then return end
  if left then
    also(s, 'dur_n', 'dur_sum', 'dur_sq', 'least_ms')
    s.IS_SHORT = (tonumber(s.dur_n or 0) < 3 and longer(s.least_ms) or budget().expected_ms(s)) > left
  end
  local n = pick(s)
  if n and not string.find(n, '^[1-9]%d*$') then error('a trial that waits has no number', 0) end
  if unfed == '' and lacks_suggester(s) then unfed = sid end
  if not n then return end
  if FULL then return redis.error_reply('OOM the server is at its maxmemory: no further trial starts') end
  return claim(s, n)
end

if w.nonce == nonce and w.claim then  -- the reply was lost
  local sid, n, attempt = string.match(w.claim, '^([^/]+)/(%d+)/(%d+)$')
  local t = read_trial(sid, n, 'unbegun')
  if t.state == 'running' and t.attempt == attempt and t.worker == worker then
    return answer(read_sweep(sid, unpack(FIELDS)), t, read_row({SID = sid}, n))
  end
end
if w.drain then
  save(w, 'state', 'idle', 'trial', '')
  return {'drained'}
end
local function claim_next()
  local sids = {args.only}
  if args.only == '' then sids = redis.call('ZRANGE', key('q', queue, 'pending'), 0, -1) end
  if #sids > 1 then sids = sweep_order().in_turn(queue, sids) end
  for _, sid in ipairs(sids) do
    if not skip[sid] and #sid <= 100 and string.find(sid, '^[a-z0-9][a-z0-9-]*$') then
      local found = sweeps().guarded(sid, function() return claim_from(sid) end)
      if found then return found end
    end
  end
end
local found = claim_next()
if found then return found end
redis.call('ZADD', key('q', queue, 'idle'), NOW_MS, worker)
save(w, 'state', 'idle', 'trial', '')
if not w.queue then redis.call('PEXPIRE', w.KEY, 3 * lease) end
return {'empty', short, unfed}
