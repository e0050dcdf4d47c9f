-- Requeues a running trial at the front of its queue, uncharged. A trial that overfilled its pods too often
-- is poison.
-- KEYS prefix
-- ARGV {sweep, number, attempt, reason, nonce (of the claim),
--      left_ms (of the worker's time, if that is up; optional), overfilled (which volume is how full, if that is
--      the reason; optional), overfilled_max (hpq/domain/retry_policy.py)}
-- Replies: released | poison | already | stale | unknown, then queue and tickets

local args = cjson.decode(ARGV[1])
local sid, n, attempt, reason = args.sweep, args.number, args.attempt, args.reason
local s, t = read_sweep(sid, 'least_ms'), read_trial(sid, n, 'unbegun', 'ran_ms', 'least_ms', 'overfilled', 'returns')
if not t.state or not s.queue then return {'unknown', '', 0} end
if t.attempt ~= attempt or is_other_claim(t, args.nonce) then return {'stale', '', 0} end
if t.state ~= 'running' then return {'already', '', 0} end

-- Counts a return that the trial caused; true if it has caused enough of them.
local function overfills_again(t)
  if not args.overfilled then return false end
  add(t, 'overfilled', 1)
  return tonumber(t.overfilled) >= tonumber(args.overfilled_max)
end

local LOSES_WORK = {stopping = true, overfilled = true, time_up = true, worker_fault = true}
local REPEATED = 3  -- returns of a trial, from which views and an alert name it

-- Counts a return, and notes on the sweep a trial that returns again and again: number, returns, reason.
local function note_return(s, t)
  add(t, 'returns', 1)
  if tonumber(t.returns) < REPEATED then return end
  set(s, 'returned', t.N .. ' ' .. t.returns .. ' ' .. reason)
  redis.call('HINCRBY', key('counters'), 'returned_again', 1)
end

local is_poison = false
local want = sweeps().changing(s, function()
  -- A running trial of a stopped sweep ends instead of being requeued.
  if not ends().end_if_stopped(s, t) then
    is_poison = overfills_again(t)
    if is_poison then
      ends().end_as_poison(s, t, args.overfilled .. ', ' .. t.overfilled .. ' times')
      return
    end
    if LOSES_WORK[reason] then note_return(s, t) end
    requeue(s, t, reason, false)
  end
  if reason == 'refused' or reason == 'data_missing' then  -- the training never began
    unset(t, 'ran_ms')
    add(t, 'unbegun', 1)
  end
  if reason == 'time_up' and not t.checkpoint and t.ran_ms then  -- the next attempt begins again, and takes longer
    local least = t.ran_ms + (args.left_ms or 0)
    for _, record in ipairs({s, t}) do
      if least > tonumber(record.least_ms or 0) then set(record, 'least_ms', int(least)) end
    end
  end
  save(t)
end)
return {is_poison and 'poison' or 'released', want[1], want[2]}
