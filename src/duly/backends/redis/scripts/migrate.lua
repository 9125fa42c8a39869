--! use now
-- migrate: notes which layout of keys this store has, and when it began, if that was not noted.
--
-- ARGV: the layout. Returns the layout noted. A repeat changes nothing.
local meta = KEYS[1] .. 'meta'
redis.call('HSETNX', meta, 'layout', ARGV[1])
redis.call('HSETNX', meta, 'began', string.format('%.0f', (now_or(''))))
return redis.call('HGET', meta, 'layout')
