--! use layout
-- store_handler_set: stores a set of handlers for a day, whole or not at all.
--
-- ARGV: the digest of the names, the names (msgpack). A repeat begins the day again.
local key = P .. 'staff:' .. ARGV[1]
call_many('SADD', key, cmsgpack.unpack(ARGV[2]))
return call('EXPIRE', key, 86400)
