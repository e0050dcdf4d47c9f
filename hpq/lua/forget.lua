-- The files of an ended trial were removed from the store of files, so nothing points to them.
-- KEYS prefix
-- ARGV sweep, number, attempt, all (1: its artifacts, too)
-- Replies: ok | stale

local sid, n, attempt, all = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local t = trial_key(sid, n)
local ended = redis.call('ZSCORE', sweep_key(sid, 'ended'), n)
if not ended or redis.call('HGET', t, 'attempt') ~= attempt then return {'stale'} end
redis.call('HDEL', t, 'checkpoint', 'checkpoint_step')
if all == '1' then redis.call('HDEL', t, 'artifacts') end
if redis.call('HEXISTS', t, 'artifacts') == 0 then redis.call('SREM', sweep_key(sid, 'files'), n) end
return {'ok'}
