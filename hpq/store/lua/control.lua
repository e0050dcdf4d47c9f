-- Applies a person's command to a sweep or to some of its trials.
-- KEYS prefix
-- ARGV sweep, verb (pause resume stop cancel set), then for cancel the numbers of single trials
--      (none: all), for set the fields
-- Replies: ok | unknown | over, then queue, tickets, how many trials it changed, and 1 if stop or cancel
--      is to be called again for the rest: a crash before that leaves the rest to reap.lua

local sid, verb = ARGV[1], ARGV[2]
local s, waiting = sweep_key(sid), sweep_key(sid, 'waiting')
if redis.call('EXISTS', s) == 0 then return {'unknown', '', 0, 0, 0} end
is_full()  -- the writes below succeed on a full server
local touched, reply, is_more = 0, 'ok', false
local flag = redis.call('HGET', s, 'flag')
local is_over = is_done(sid)

local function stop_running(n)
  touched = touched + redis.call('HSET', trial_key(sid, n), 'stop', 'stop')  -- once, if sent twice
end

local verbs = {}

function verbs.pause()
  if is_over then
    reply = 'over'
  elseif flag == '' then
    redis.call('HSET', s, 'flag', 'paused')
  elseif flag ~= 'paused' then
    reply = 'over'
  end
end

function verbs.resume()
  if flag == 'paused' then redis.call('HSET', s, 'flag', '') elseif flag ~= '' then reply = 'over' end
  redis.call('HSET', s, 'held', '', 'tail', '', 'tail_again', '')
end

function verbs.stop()
  if not is_over then redis.call('HSET', s, 'flag', 'stopped') end
  close_search(sid, 'stopped')
  touched, is_more = cancel_all_waiting(sid, true)
end

function verbs.cancel()
  if #ARGV == 2 then
    if not is_over then redis.call('HSET', s, 'flag', 'cancelled') end
    close_search(sid, 'cancelled')
    touched, is_more = cancel_all_waiting(sid)
    for _, n in ipairs(redis.call('ZRANGE', sweep_key(sid, 'running'), 0, -1)) do stop_running(n) end
  end
  for i = 3, #ARGV do
    if redis.call('ZSCORE', waiting, ARGV[i]) then
      cancel_waiting(sid, ARGV[i])
      touched = touched + 1
    elseif redis.call('ZSCORE', sweep_key(sid, 'running'), ARGV[i]) then
      stop_running(ARGV[i])
    end
  end
end

function verbs.set()
  redis.call('HSET', s, unpack(ARGV, 3))
  if not is_done(sid) then open(sid) end
end

local want = changing(sid, verbs[verb])
event(sid, verb, 0, 0, 'touched', touched, unpack(verb == 'set' and {unpack(ARGV, 3)} or {}))
return {reply, want[1], want[2], touched, is_more and 1 or 0}
