--! use clock
-- node_list: the nodes whose presence has not expired. Changes nothing.
--
-- ARGV: now or ''. Returns node and metrics (nil: as in the node) of each (flat), in no particular order.
local now = string.format('%.0f', (now_or(ARGV[1])))
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1] .. 'alive', '(' .. now, '+inf')) do
    found[#found + 1] = redis.call('HGET', KEYS[1] .. 'nodes', id)
    found[#found + 1] = redis.call('HGET', KEYS[1] .. 'metrics', id)
end
return found
