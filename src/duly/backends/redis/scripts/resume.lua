--! use notify
-- resume: allows claims from a queue again. ARGV: the queue. Returns 0 if it was not paused.
local resumed = redis.call('SREM', KEYS[1] .. 'paused', ARGV[1])
if resumed == 1 then notify() end
return resumed
