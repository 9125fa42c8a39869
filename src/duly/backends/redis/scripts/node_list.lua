--! use now
-- The nodes whose presence has not lapsed. ARGV: now ("" for the server's clock).
-- Returns node, metrics (nil: as in the node) for each, in no particular order.
local prefix = KEYS[1]
local alive = redis.call('ZRANGEBYSCORE', prefix .. 'alive', '(' .. string.format('%.0f', (now_or(ARGV[1]))), '+inf')
local found = {}
for _, id in ipairs(alive) do
    found[#found + 1] = redis.call('HGET', prefix .. 'nodes', id)
    found[#found + 1] = redis.call('HGET', prefix .. 'metrics', id)
end
return found
