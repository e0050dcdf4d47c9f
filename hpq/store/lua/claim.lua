-- Claims the next trial of a worker's queue: by the sweep's priority, then by the owner with the fewest
-- running trials, then by the sweep's age; within a sweep requeued trials first, then by number, then retried ones.
-- A repeated call with the same nonce gets the same reply.
-- KEYS prefix
-- ARGV {queue, worker, host, nonce, lease_ms, schema (the newest that the worker reads), provenance (digest
--      of what its attempts run on), skip (list of sweeps), only (the one sweep, or trial as sweep/7, that
--      may be claimed; '' for any)}
-- Replies: trial sweep number attempt params checkpoint ('' for none), how many earlier attempts never
--      began, unfed | empty, a sweep with a newer schema ('' for none), unfed (a sweep that lacks a
--      suggester; '' for none) | drained (a person stopped this worker from claiming)

local args = cjson.decode(ARGV[1])
local queue, worker, host, nonce = args.queue, args.worker, args.host, args.nonce
local lease, schema, provenance, skip = tonumber(args.lease_ms), tonumber(args.schema), args.provenance, {}
for _, sid in ipairs(args.skip) do skip[sid] = true end
local w, unfed = key('w', worker), ''
local ROW_BYTES = 131072 -- twice what hpq writes
local BRIEF_MS = 10000  -- the next run of the reaper gives each idle worker a ticket

local function answer(sid, n, attempt)
  if lacks_suggester(sid) then unfed = sid end
  local f = redis.call('HMGET', trial_key(sid, n), 'checkpoint', 'unbegun')
  local row = redis.call('HGET', sweep_key(sid, 'params'), n)
  -- A worker refuses an empty row as altered; a reply of any length it could never read.
  if #(row or '') > ROW_BYTES then row = '' end
  if #(f[1] or '') > ROW_BYTES then f[1] = '-' end
  return {'trial', sid, n, attempt, row, f[1] or '', f[2] or '0', unfed}
end

local last = redis.call('HMGET', w, 'nonce', 'claim', 'store_id', 'drain')
if last[1] == nonce and last[2] then
  local sid, n, attempt = string.match(last[2], '^([^/]+)/(%d+)/(%d+)$')
  local f = redis.call('HMGET', trial_key(sid, n), 'state', 'attempt', 'worker')
  if f[1] == 'running' and f[2] == attempt and f[3] == worker then
    return answer(sid, tonumber(n), tonumber(attempt))
  end
end

if is_drained(last[4]) then
  redis.call('HSET', w, 'state', 'idle', 'trial', '')
  return {'drained'}
end

-- The other workers that may claim from a sweep, read once however many trials wait: whether one is on
-- another host, whether one is idle, and their file stores.
local function other_candidates(sid)
  local found = {stores = {}}
  for _, other in ipairs(candidates(sid)) do
    if other.host ~= host then found.is_far = true end
    if other.name ~= worker then
      if other.idle then found.is_idle = true end
      if (other.store or '') ~= '' then found.stores[other.store] = true end
    end
  end
  return found
end

-- The file store that holds a trial's checkpoint if this worker lacks that store.
local function store_elsewhere(pointer)
  local _, decoded = pcall(cjson.decode, pointer or '')
  return type(decoded) == 'table' and decoded.store and decoded.store ~= last[3] and decoded.store
end

local function pick(sid)
  local waiting, found = sweep_key(sid, 'waiting'), nil
  local function others()
    found = found or other_candidates(sid)
    return found
  end
  -- True if a trial should go to another worker: to one that has its checkpoint, however busy; to
  -- another host, else to an idle worker of this host. The last is awaited briefly only, since that
  -- worker may be busy by then.
  local function elsewhere(n)
    local f = redis.call('HMGET', trial_key(sid, n), 'avoid', 'avoid_ms', 'worker', 'checkpoint')
    local store, waited = store_elsewhere(f[4]), NOW - tonumber(f[2] or 0)
    if store and others().stores[store] then return true end
    if f[1] ~= host or waited > 2 * FRESH_MS then return false end
    return others().is_far or (f[3] == worker and others().is_idle and waited < BRIEF_MS)
  end
  local function begun(from, upto)
    for _, n in ipairs(redis.call('ZRANGEBYSCORE', waiting, from, upto, 'LIMIT', 0, 100)) do
      if not elsewhere(n) then return n end
    end
  end
  return begun(int(1 - FRONT), 0) or redis.call('ZRANGEBYSCORE', waiting, '(0', '+inf', 'LIMIT', 0, 1)[1]
    or begun('-inf', int(-FRONT))
end

local function claim(sid, n)
  local t, attempt = trial_key(sid, n), nil
  changing(sid, function()
    redis.call('ZREM', sweep_key(sid, 'waiting'), n)
    redis.call('ZADD', sweep_key(sid, 'running'), int(NOW), n)
    count_busy(sid, 1)
    redis.call('ZADD', key('leases'), int(NOW + lease), sid .. '/' .. n)
  end)
  attempt = redis.call('HINCRBY', t, 'attempt', 1)
  local from, pointer = unpack(redis.call('HMGET', t, 'checkpoint_step', 'checkpoint'))
  -- Without a checkpoint training starts from the beginning, so the points of earlier attempts are
  -- removed here; with one, `beat` removes them when this attempt reports the same steps.
  if not from then
    forget_points(sid, n)
  else
    local _, checkpoint = pcall(cjson.decode, pointer)
    checkpoint = type(checkpoint) == 'table' and checkpoint or {}
    -- An attempt since that checkpoint may have restarted and logged less.
    local logged = math.min(tonumber(checkpoint.logged) or 0, tonumber(redis.call('HGET', t, 'logged') or 0))
    rewind(sid, n, logged, tonumber(checkpoint.best) and checkpoint.best or '')
  end
  add_attempt_time(t)
  redis.call('HDEL', t, 'stop', 'reaped', 'closed', 'avoid', 'avoid_ms', 'kind', 'error', 'fingerprint',
    'objective', 'ended_ms', 'phase', 'step', 'seq', 'artifacts', 'restarted', 'resumes', 'checkpoints', 'pruning',
    'gone', 'thinned', 'best_value', 'run_info')
  if from then redis.call('HSET', t, 'step', from, 'resumes', '\n') end
  redis.call('HSET', t, 'state', 'running', 'worker', worker, 'host', host, 'claimed_ms', int(NOW),
    'beat_ms', int(NOW), 'provenance', provenance, 'nonce', nonce)
  redis.call('HSET', w, 'nonce', nonce, 'claim', sid .. '/' .. n .. '/' .. attempt, 'state', 'busy',
    'trial', sid .. '/' .. n)
  redis.call('PEXPIRE', w, 3 * lease)  -- as `presence` does: HSET may have created the hash
  redis.call('ZREM', key('q', queue, 'idle'), worker)
  hold_ran_on(sid, provenance)
  event(sid, 'claimed', n, attempt, 'worker', worker, 'host', host, 'provenance', provenance,
    unpack(from and {'from', from} or {}))
  return answer(sid, tonumber(n), attempt)
end

-- The requested trial if it waits: a worker for one trial claims no other.
local function requested(sid, n) return redis.call('ZSCORE', sweep_key(sid, 'waiting'), n) and n end

local full, newer = is_full(), ''
local only, number = string.match(args.only, '^([^/]*)/?(%d*)$')
local sweeps = only ~= '' and {only} or in_turn(queue)
local function claim_from(sid)
  if claimable(sid) > 0 then
    local of = redis.call('HMGET', sweep_key(sid), 'queue', 'schema')
    if of[1] == queue and (tonumber(of[2]) or 0) > schema then
      newer = sid
    elseif of[1] == queue then  -- the sweep in `only` may be of another queue, or not exist
      local n
      if number ~= '' then n = requested(sid, number) else n = pick(sid) end
      if unfed == '' and lacks_suggester(sid) then unfed = sid end
      if n then
        if full and free_memory(65536) < 65536 then  -- results need the remaining memory
          return redis.error_reply('OOM the server is at its maxmemory: no further trial starts')
        end
        return claim(sid, n)
      end
    end
  end
end
for _, sid in ipairs(sweeps) do
  if not skip[sid] and string.find(sid, '^[a-z0-9][a-z0-9-]*$') then
    local claimed = guarded(sid, function() return claim_from(sid) end)
    if claimed then return claimed end
  end
end
redis.call('ZADD', key('q', queue, 'idle'), int(NOW), worker)
redis.call('HSET', w, 'state', 'idle', 'trial', '')
redis.call('PEXPIRE', w, 3 * lease)
return {'empty', newer, unfed}
