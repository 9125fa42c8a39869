-- doze: notes that somebody goes to sleep, unless the bell was rung since it was heard last.
--
-- ARGV: the bell as it was heard, an even number. Returns it as it is: if that differs, nothing was noted.
-- A repeat notes it once.
local bell = tonumber(redis.call('GET', KEYS[1] .. 'bell') or '0')
local even = bell - bell % 2
if even == tonumber(ARGV[1]) and bell == even then redis.call('INCR', KEYS[1] .. 'bell') end
return even
