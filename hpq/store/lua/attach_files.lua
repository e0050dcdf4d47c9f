-- Names the files of an attempt that ended before its store took them (`unstored` of `commit`).
-- KEYS prefix
-- ARGV {sweep, number, attempt, nonce, artifacts (JSON)}
-- Replies: attached (now, or by an earlier call) | stale (no sweep needs them any more) | unknown (the attempt,
--      or its end; or unreadable)

local args = cjson.decode(ARGV[1])
local sid, n = args.sweep, args.number
files().store_of(args.artifacts)
local function attach()
  local s, t = read_sweep(sid), read_trial(sid, n, 'unstored')
  if not t.state or not s.queue then
    local removed = tonumber(redis.call('ZSCORE', key('removed'), sid) or nil)
    return {removed and removed % 1 == 0 and 'stale' or 'unknown'}
  end
  local newer = tonumber(t.attempt) - tonumber(args.attempt)
  if newer < 0 then return {'unknown'} end  -- the server lost its newest data
  if newer > 0 or is_other_claim(t, args.nonce) then return {'stale'} end
  if t.artifacts == args.artifacts then return {'attached'} end
  if t.closed ~= t.attempt then return {'unknown'} end  -- its result is on the way
  if not files().forget_unstored(sid, n) then return {'stale'} end  -- retried, or dropped by `keep`
  files().add_store(sid, args.artifacts)
  set(t, 'artifacts', args.artifacts)
  event(t, 'stored')
  save(t)
  return {'attached'}
end
-- As `commit`: the files wait on if a record is damaged.
return sweeps().guarded(sid, attach) or {'unknown'}
