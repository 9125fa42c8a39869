--! use now
-- A node lives until now + ttl; replaces what it said before. Forgets nodes that have been silent for a day.
-- <prefix>nodes: id -> the node as JSON; <prefix>metrics: id -> its metrics since, as JSON; <prefix>alive: id by expiry.
-- ARGV: id, node, ttl (microseconds), now ("" for the server's clock). Returns nothing.
local prefix, id = KEYS[1], ARGV[1]
local now = now_or(ARGV[4])
local gone = redis.call('ZRANGEBYSCORE', prefix .. 'alive', '-inf', now - 86400000000, 'LIMIT', 0, 100)
if #gone > 0 then
    redis.call('ZREM', prefix .. 'alive', unpack(gone))
    redis.call('HDEL', prefix .. 'nodes', unpack(gone))
    redis.call('HDEL', prefix .. 'metrics', unpack(gone))
end
redis.call('HSET', prefix .. 'nodes', id, ARGV[2])
redis.call('HDEL', prefix .. 'metrics', id)
redis.call('ZADD', prefix .. 'alive', string.format('%.0f', now + tonumber(ARGV[3])), id)
return false
