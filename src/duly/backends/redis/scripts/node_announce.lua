--! use clock
-- node_announce: a node is present until now + ttl; replaces its previous record. Deletes nodes that were silent for a day.
--
-- `nodes`: id → the node as JSON; `metrics`: id → its metrics since, as JSON; `alive`: ids by expiry.
-- ARGV: now or '', id, node, ttl in microseconds. Returns nothing.
local now, id = now_or(ARGV[1]), ARGV[2]
local alive, nodes, metrics = KEYS[1] .. 'alive', KEYS[1] .. 'nodes', KEYS[1] .. 'metrics'
local gone = redis.call('ZRANGEBYSCORE', alive, '-inf', now - 86400000000, 'LIMIT', 0, 100)
if #gone > 0 then
    redis.call('ZREM', alive, unpack(gone))
    redis.call('HDEL', nodes, unpack(gone))
    redis.call('HDEL', metrics, unpack(gone))
end
redis.call('HSET', nodes, id, ARGV[3])
redis.call('HDEL', metrics, id)
redis.call('ZADD', alive, string.format('%.0f', now + tonumber(ARGV[4])), id)
return false
