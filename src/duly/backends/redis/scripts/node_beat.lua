--! use now
-- Extend the presence of a node whose presence has not lapsed.
-- ARGV: id, ttl (microseconds), metrics as JSON ("" to leave them), now ("" for the server's clock), a text that the
-- node's record must contain ("": any will do), by which its process is told from another one of the same id.
-- Returns {1 if it was extended, else 0; the store's incarnation or nil; its last fence or nil}: a node that beats also
-- notices when the store under it is another one, even if no connection broke.
local prefix, id = KEYS[1], ARGV[1]
local now = now_or(ARGV[4])
local extended = 0
local node = redis.call('HGET', prefix .. 'nodes', id) or ''
if tonumber(redis.call('ZSCORE', prefix .. 'alive', id) or 0) > now and string.find(node, ARGV[5], 1, true) then
    extended = 1
    redis.call('ZADD', prefix .. 'alive', string.format('%.0f', now + tonumber(ARGV[2])), id)
    if ARGV[3] ~= '' then
        redis.call('HSET', prefix .. 'metrics', id, ARGV[3])
    end
end
return { extended, redis.call('HGET', prefix .. 'incarnation', 'id'), redis.call('HGET', prefix .. 'meta', 'fence') }
