-- doze: notes that somebody goes to sleep, unless there was a ring since the one that it heard last.
--
-- ARGV: the number of rings heard. Returns the number there have been: if it differs, nothing was noted.
local rings = redis.call('HGET', KEYS[1] .. 'meta', 'rings') or '0'
if rings == ARGV[1] then redis.call('SET', KEYS[1] .. 'asleep', '') end
return rings
