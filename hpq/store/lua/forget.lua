-- What was named as removable in a store of files is removed there.
-- KEYS prefix
-- ARGV store, then the entries of its stream that are worked off
-- Replies: ok

is_full()  -- goes on all the same
local doomed = key('doomed', ARGV[1])
for i = 2, #ARGV do redis.call('XDEL', doomed, ARGV[i]) end
if redis.call('XLEN', doomed) == 0 then redis.call('DEL', doomed) end
return {'ok'}
