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
return { extended, redis.call('HGET', KEYS[1] .. 'incarnation', 'id'), redis.call('HGET', KEYS[1] .. 'meta', 'fence') }
