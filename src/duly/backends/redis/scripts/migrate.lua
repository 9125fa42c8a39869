--! use clock
-- migrate: stores the layout of keys and when this store began, if they are not stored yet.
--
-- ARGV: the layout. Returns the stored layout. A repeat changes nothing.
local meta = KEYS[1] .. 'meta'
redis.call('HSETNX', meta, 'layout', ARGV[1])
redis.call('HSETNX', meta, 'began', string.format('%.0f', (now_or(''))))
return redis.call('HGET', meta, 'layout')
