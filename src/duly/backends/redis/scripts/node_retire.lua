--! use ring
-- Withdraw a node's presence; unknown ones are ignored. Rings: others may have to step in.
-- ARGV: id. Returns 1 if it was known, else 0.
local prefix, id = KEYS[1], ARGV[1]
redis.call('HDEL', prefix .. 'nodes', id)
redis.call('HDEL', prefix .. 'metrics', id)
local known = redis.call('ZREM', prefix .. 'alive', id)
ring()
return known
