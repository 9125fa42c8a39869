--! use notify
-- node_retire: ends a node's presence; does nothing for an unknown one. Wakes sleeping nodes: they may have to take over.
--
-- ARGV: id. Returns 1 if it was known, else 0.
redis.call('HDEL', KEYS[1] .. 'nodes', ARGV[1])
redis.call('HDEL', KEYS[1] .. 'metrics', ARGV[1])
local known = redis.call('ZREM', KEYS[1] .. 'alive', ARGV[1])
notify()
return known
