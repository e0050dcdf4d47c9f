-- Stores the provenance record of a worker's attempts under its digest; `remove` drops it.
-- KEYS prefix
-- ARGV digest, the record as JSON
-- Replies: ok

redis.call('HSETNX', key('provenance'), ARGV[1], ARGV[2])
-- Restarts the record's grace period: a worker that starts has not claimed yet.
if tonumber(redis.call('ZSCORE', key('ran'), ARGV[1]) or 0) <= 0 then
  redis.call('ZADD', key('ran'), int(-NOW), ARGV[1])
end
return {'ok'}
