--! use record
-- staff: makes a set of handlers known for a day, whole or not at all.
--
-- ARGV: the digest of the names, the names (msgpack). A repeat begins the day anew.
local key = P .. 'staff:' .. ARGV[1]
call_many('SADD', key, cmsgpack.unpack(ARGV[2]))
return call('EXPIRE', key, 86400)
