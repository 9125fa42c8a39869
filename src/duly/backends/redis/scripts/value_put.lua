-- value_put: writes a value, or deletes it, if its version is the expected one.
--
-- ARGV: kind, key, expected version ('' for any, 0 for none), '1' to write and the value, or '0' to delete.
-- Returns the new version, 0 for a deletion, nil for a lost race.
redis.call('HEXISTS', KEYS[1] .. 'meta', 'layout') -- raises where the store was closed, also for a new kind
local hash, key = KEYS[1] .. 'kind:' .. ARGV[1], ARGV[2]
local present = redis.call('HGET', hash, key)
local version = present and struct.unpack('>I8', present) or 0
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= version then return false end
if ARGV[4] == '0' then
    redis.call('HDEL', hash, key)
    return 0
end
redis.call('HSET', hash, key, struct.pack('>I8', version + 1) .. ARGV[5])
return version + 1
