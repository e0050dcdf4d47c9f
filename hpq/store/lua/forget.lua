-- What was named as removable in a store of files is removed there.
-- KEYS prefix
-- ARGV store, then the entries of its stream that are worked off
-- Replies: ok

is_full()  -- goes on all the same
local garbage = key('garbage', ARGV[1])
for i = 2, #ARGV do redis.call('XDEL', garbage, ARGV[i]) end
if redis.call('XLEN', garbage) == 0 then redis.call('DEL', garbage) end
return {'ok'}
