-- shared_put: writes a small shared value and publishes its key (`shared`).
--
-- A value is a field of the hash `shared`: "<version>:<value>".
-- ARGV: key, value, expected version ('' for any; 0: it must not exist). Returns the new version, nil for a lost race.
local hash, key = KEYS[1] .. 'shared', ARGV[1]
local present = redis.call('HGET', hash, key)
local version = present and tonumber(string.match(present, '^(%d+):')) or 0
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= version then return false end
redis.call('HSET', hash, key, string.format('%.0f:', version + 1) .. ARGV[2])
redis.call('PUBLISH', hash, key)
return version + 1
