-- Keeps what a worker's attempts run on under its digest; `remove` says when it goes.
-- KEYS prefix
-- ARGV digest, the record as JSON
-- Replies: ok

redis.call('HSETNX', key('provenance'), ARGV[1], ARGV[2])
-- Anew for a worker that starts: its first claim is yet to come.
if tonumber(redis.call('ZSCORE', key('ran'), ARGV[1]) or 0) <= 0 then
  redis.call('ZADD', key('ran'), int(-NOW), ARGV[1])
end
return {'ok'}
