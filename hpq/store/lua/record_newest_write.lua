-- Records that the data have all that was written before this call.
-- KEYS prefix
-- ARGV (none)
-- Replies: ok, then the time of this record, ms

local _, newest = server_restarts().look()
redis.call('HSET', key('server'), 'newest_ms', int(newest))
return {'ok', newest}
