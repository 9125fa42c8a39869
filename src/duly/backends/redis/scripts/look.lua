--! use now looking
-- look: runs as they are stored. Changes nothing.
--
-- ARGV: ids (msgpack), at most 1,000. Returns the server's clock, and what `look_at` says.
return { (now_or(ARGV[2])), look_at(cmsgpack.unpack(ARGV[1])) }
