--! use clock
-- node_beat: extends the presence of a node whose presence has not expired.
--
-- ARGV: now or '', id, ttl in microseconds, metrics as JSON ('' to leave them), and a text that the node's record must
-- contain ('' for any), which distinguishes its process from another one with the same id.
-- Returns 1 if it was extended, else 0; the store's incarnation or nil; its last fence or nil. From these a node notices
-- that the store was replaced, even if no connection broke.
local now, id = now_or(ARGV[1]), ARGV[2]
local alive, extended = KEYS[1] .. 'alive', 0
local node = redis.call('HGET', KEYS[1] .. 'nodes', id) or ''
if tonumber(redis.call('ZSCORE', alive, id) or 0) > now and string.find(node, ARGV[5], 1, true) then
    extended = 1
    redis.call('ZADD', alive, string.format('%.0f', now + tonumber(ARGV[3])), id)
    if ARGV[4] ~= '' then redis.call('HSET', KEYS[1] .. 'metrics', id, ARGV[4]) end
end
-- A node of 0.1.0 does not keep the lists of newest ended runs (`recent_runs`): as long as one is alive, and for a minute
-- after it was last seen, they do not count as complete.
for _, other in ipairs(redis.call('ZRANGEBYSCORE', alive, string.format('(%.0f', now), '+inf')) do
    if not string.find(redis.call('HGET', KEYS[1] .. 'nodes', other) or '"protocol"', '"protocol"', 1, true) then
        redis.call('HSET', KEYS[1] .. 'meta', 'recent', string.format('%.0f', now + 60000000))
        break
    end
end
return { extended, redis.call('HGET', KEYS[1] .. 'incarnation', 'id'), redis.call('HGET', KEYS[1] .. 'meta', 'fence') }
