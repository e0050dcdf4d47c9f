-- What an attempt reports and prints. A batch is ARGV[2], printed bytes, and from ARGV[3] on the step,
-- the metric and the value of each point; its other fields are those of hpq/store/wire/attempt.py.

local LOG_BYTES = 1048576
local ORDER_BYTES = 20000
local TAG_BYTES = 1000
local ENTRY = '<dIIc0'  -- of a packed log: ms, sequence, length, bytes (hpq/store/wire/trial.py)
local ENTRY_HEAD = 16    -- bytes of an entry before its own
local PAGE = 100

-- True if a batch was not recorded before.
local function is_new(t, batch) return tonumber(batch.seq) > tonumber(t.seq or 0) end

-- Drops the oldest entries of the log until the rest fits.
local function bound_log(t, bytes)
  local log, size = trial_key(t.SID, t.N, 'log'), tonumber(t.log_bytes)
  while size > bytes do
    local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    redis.call('XDEL', log, oldest[1])
    size = size - #oldest[2][2]
  end
  set(t, 'log_bytes', size)
end

-- Returns the log that the attempts before this one left in the trial's record: entries, the newest first.
local function packed_log(t)
  return t.attempt ~= '1' and redis.call('HGET', trial_key(t.SID, t.N, 'points'), points().LOG) or ''
end

-- Returns the time and the sequence of an entry behind another one: readers that follow a log ask for what is behind
-- the last entry that they have, and the server's clock may have gone back.
local function behind(ms, seq)
  if ms < NOW then return NOW, 0 end
  return ms, seq + 1
end

local function behind_packed(log)
  if log == '' then return NOW, 0 end
  return behind(struct.unpack(ENTRY, log))
end

-- Appends to the log what a batch printed; a full server drops it.
local function add_log(t, full)
  local printed, log = ARGV[2], trial_key(t.SID, t.N, 'log')
  if printed == '' or full then return end
  local id = '*'
  if t.attempt ~= '1' and redis.call('EXISTS', log) == 0 then
    local ms, seq = behind_packed(packed_log(t))
    id = int(ms) .. '-' .. int(seq)
  end
  redis.call('XADD', log, id, 'd', printed)
  add(t, 'log_bytes', #printed)
  bound_log(t, LOG_BYTES)
end

-- Moves the log of an attempt that ends, its newest bytes, from its stream into the field of the trial's points that
-- has those of the attempts before. Entries keep their ids, which readers follow; the newest is the first, since the
-- oldest are dropped. `printed`: the last bytes, which no stream has; '' if there are none. `bytes`: the longest that
-- the field may be.
local function pack_log(t, printed, bytes)
  local stream, record = trial_key(t.SID, t.N, 'log'), trial_key(t.SID, t.N, 'points')
  local before, packed, left = packed_log(t), {}, bytes
  local function keep(ms, seq, data)
    if left <= ENTRY_HEAD then return end
    data = string.sub(data, -(left - ENTRY_HEAD))
    left = left - ENTRY_HEAD - #data
    packed[#packed + 1] = struct.pack(ENTRY, ms, seq, #data, data)
  end
  local function id_of(entry)
    local ms, seq = string.match(entry[1], '(%d+)-(%d+)')
    return tonumber(ms), tonumber(seq)
  end
  local function page(last) return redis.call('XREVRANGE', stream, last, '-', 'COUNT', PAGE) end

  local entries = t.log_bytes and page('+') or {}
  if printed ~= '' then
    local ms, seq = behind_packed(before)
    if entries[1] then ms, seq = behind(id_of(entries[1])) end
    keep(ms, seq, printed)
  end
  while #entries > 0 do
    for _, entry in ipairs(entries) do
      local ms, seq = id_of(entry)
      keep(ms, seq, entry[2][2])
    end
    entries = left > ENTRY_HEAD and #entries == PAGE and page('(' .. entries[PAGE][1]) or {}
  end
  local at = 1
  while left > ENTRY_HEAD and at <= #before do
    local ms, seq, data, after = struct.unpack(ENTRY, before, at)
    keep(ms, seq, data)
    at = after
  end
  if t.log_bytes then redis.call('DEL', stream) end
  redis.call('HSET', record, points().LOG, table.concat(packed))
  if tonumber(t.log_bytes) ~= bytes - left then set(t, 'log_bytes', bytes - left) end
end

-- The training starts again, without its checkpoint: that stays until this attempt publishes one, since
-- the next worker may have its store, and resume from it. Or, with `kept_step`, from its checkpoint.
local function restart(t, why, kept_step)
  also(t, 'resumes')
  if kept_step then
    points().forget_after(t, kept_step)
    set(t, 'resumes', '\n')
  else
    points().forget(t)
    unset(t, 'resumes')
  end
  save(t)
  set(t, 'restarted', why)
  event(t, 'restarted', 'why', why)
end

-- Progress resets the count of lost workers: a checkpoint at a later step than all before. Without steps
-- it is the second checkpoint of an attempt, as the first may be saved before training.
local function take_checkpoint(t, batch)
  also(t, 'checkpoints', 'checkpoint_mark')
  local furthest, at = tonumber(t.checkpoint_mark or 0), tonumber(batch.checkpoint_step)
  files().add_store(t.SID, batch.checkpoint)
  add(t, 'checkpoints', 1)
  if at > furthest then set(t, 'checkpoint_mark', int(at)) end
  if at > furthest or (t.checkpoints == '2' and batch.step == '0' and at == 0) then
    unset(t, 'lost', 'lost_hosts', 'c:killed')
  end
  set(t, 'checkpoint', batch.checkpoint)
  set(t, 'checkpoint_step', batch.checkpoint_step)
end

-- Adds the lines that a field of the sweep lacks, while it has fewer bytes than `most`.
local function add_lines(s, field, lines, most)
  local known = '\n' .. (s[field] or '')
  local before = #known
  for line in string.gmatch(lines, '[^\n]+') do
    local is_known = string.find(known, '\n' .. line .. '\n', 1, true)
    if not is_known and #known < most then known = known .. line .. '\n' end
  end
  if #known > before then set(s, field, string.sub(known, 2)) end
end

-- What the script set beside numbers. The first project that a run names is the sweep's, and the sweep has the
-- tags of all runs.
local function take_run_info(s, t, info)
  set(t, 'run_info', info)
  local is_json, found = pcall(cjson.decode, info)
  if not is_json or type(found) ~= 'table' then return end
  also(s, 'run_project', 'run_tags')
  if type(found.project) == 'string' and found.project ~= '' and not is_set(s.run_project) then
    set(s, 'run_project', found.project)
  end
  for _, tag in ipairs(type(found.tags) == 'table' and found.tags or {}) do
    if type(tag) == 'string' then add_lines(s, 'run_tags', tag, TAG_BYTES) end
  end
end

-- The metrics of a sweep in the order in which its trials first reported them, a line each.
local function take_metric_order(s, names) add_lines(s, 'metric_order', names, ORDER_BYTES) end

-- Why files of a trial are in no store, or '' once they are: a sweep has the number of such trials, and
-- the reason of the last one.
local function take_unkept(s, t, why)
  also(s, 'unkept')
  also(t, 'unkept')
  if is_set(why) then
    if not is_set(t.unkept) then
      add(s, 'unkept', 1)
      if string.find(why, '^checkpoint%-not%-kept ') then  -- its store refused it
        redis.call('HINCRBY', key('counters'), 'store_refused', 1)
      end
    end
    set(t, 'unkept', '1')
    set(s, 'unkept_why', t.N .. ' ' .. why)
  elseif is_set(t.unkept) then
    add(s, 'unkept', -1)
    unset(t, 'unkept')
  end
end

-- Records a batch in the trial's record, except its points, what it printed and where training stands. A full
-- server keeps the last values, and drops printed bytes and points.
local function take_batch(s, t, batch, rule, full)
  if full and (ARGV[2] ~= '' or #ARGV > 2 or batch.run_info) then
    set(t, 'thinned', '1')
    redis.call('HINCRBY', key('counters'), 'reports_dropped', 1)
  end
  if batch.run_info and not full then take_run_info(s, t, batch.run_info) end
  if batch.metric_order then take_metric_order(s, batch.metric_order) end
  if batch.unkept then take_unkept(s, t, batch.unkept) end
  if batch.restarted then restart(t, batch.restarted, tonumber(batch.kept_step)) end
  if batch.checkpoint then take_checkpoint(t, batch) end
  if batch.usage and not full then points().keep_usage(t, batch.usage) end
  for i = 3, #ARGV, 3 do
    set(t, 'm:' .. ARGV[i + 1], ARGV[i + 2])
    if rule and ARGV[i + 1] == rule.metric then early_termination().log_value(s, t, rule, ARGV[i], ARGV[i + 2]) end
  end
end

-- Removes the points that an earlier attempt reported from this step on, at the first value that this
-- attempt reports of a metric. `resumes` lists the metrics that are done.
local function cut(t, metric, stream, step)
  if string.find(t.resumes, '\n' .. metric .. '\n', 1, true) then return end
  set(t, 'resumes', t.resumes .. metric .. '\n')
  points().cut(stream, step)
end

-- Appends the points of a batch to the streams of their metrics; a full server drops them.
local function add_points(t, batch, full)
  for i = 3, #ARGV, 3 do
    local stream = trial_key(t.SID, t.N, 'p:' .. ARGV[i + 1])
    if t.resumes then cut(t, ARGV[i + 1], stream, tonumber(ARGV[i])) end
    if not full then points().add(stream, ARGV[i], ARGV[i + 2], batch.curve_points) end
  end
end

return {is_new = is_new, add_log = add_log, pack_log = pack_log, take_batch = take_batch, add_points = add_points,
  take_metric_order = take_metric_order, take_run_info = take_run_info}
