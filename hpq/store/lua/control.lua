-- Applies a person's command to a sweep or to some of its trials.
-- KEYS prefix
-- ARGV sweep, verb (pause resume stop cancel set), then for cancel the numbers of single trials
--      (none: all), for set the fields
-- Replies: ok | unknown | over, then queue, tickets, how many trials it changed, and 1 if stop or cancel
--      is to be called again for the rest: a crash before that leaves the rest to reap.lua

local sid, verb = ARGV[1], ARGV[2]
local s, waiting = read_sweep(sid), sweep_key(sid, 'waiting')
if not s.queue then return {'unknown', '', 0, 0, 0} end
local touched, reply, is_more = 0, 'ok', false
local is_over = is_done(s)

local function stop_running(n)
  touched = touched + redis.call('HSET', trial_key(sid, n), 'stop', 'stop')  -- once, if sent twice
end

local verbs = {}

function verbs.pause()
  if is_over or is_closed(s) then
    reply = 'over'
  else
    set_state(s, 'paused')
  end
end

function verbs.resume()
  if is_closed(s) then
    reply = 'over'
  else
    set_state(s, 'open')
    set(s, 'tail', '')
  end
end

function verbs.stop()
  if not is_over then set_state(s, 'stopped') end  -- without a cause: `append` opens it no more
  sweeps().close_search(s, 'stopped')
  touched, is_more = ends().cancel_all_waiting(s, true)
end

function verbs.cancel()
  if #ARGV == 2 then
    if not is_over then set_state(s, 'cancelled') end
    sweeps().close_search(s, 'cancelled')
    touched, is_more = ends().cancel_all_waiting(s)
    for _, n in ipairs(redis.call('ZRANGE', sweep_key(sid, 'running'), 0, -1)) do stop_running(n) end
  end
  for i = 3, #ARGV do
    if redis.call('ZSCORE', waiting, ARGV[i]) then
      ends().cancel_waiting(s, ARGV[i])
      touched = touched + 1
    elseif redis.call('ZSCORE', sweep_key(sid, 'running'), ARGV[i]) then
      stop_running(ARGV[i])
    end
  end
end

function verbs.set()
  for i = 3, #ARGV, 2 do set(s, ARGV[i], ARGV[i + 1]) end
  sweeps().reread(s)
  if is_set(s.budget_ms) then budget().count_starts(s) end  -- it may be new
  if not is_done(s) then sweeps().open(s) end  -- run_cap may let more come
end

local want = sweeps().changing(s, verbs[verb])
sweep_event(sid, verb, 0, 0, 'touched', touched, unpack(verb == 'set' and {unpack(ARGV, 3)} or {}))
return {reply, want[1], want[2], touched, is_more and 1 or 0}
