-- Removes garbage entries of a file store after a worker has removed the files.
-- KEYS prefix
-- ARGV store, then the ids of the entries
-- Replies: ok

is_full()  -- the writes below succeed on a full server
local garbage = key('garbage', ARGV[1])
for i = 2, #ARGV do redis.call('XDEL', garbage, ARGV[i]) end
if redis.call('XLEN', garbage) == 0 then redis.call('DEL', garbage) end
return {'ok'}
