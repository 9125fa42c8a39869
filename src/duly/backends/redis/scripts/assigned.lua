--! use now record
-- assigned: what nodes were given and is not held. Changes nothing.
--
-- ARGV: now or ''. Returns for each node its name, how much of it is ready or running, and how much there is in all (flat).
local now, found = now_or(ARGV[1]), {}
for _, node in ipairs(call('SMEMBERS', P .. 'assignees')) do
    local key, n = P .. 'assigned:' .. node, #found
    found[n + 1], found[n + 2], found[n + 3] = node, call('ZCOUNT', key, '-inf', now), call('ZCARD', key)
end
return found
