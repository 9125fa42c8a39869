-- Write a small shared value and tell those who watch (<prefix>shared, by key).
-- A value is one field of the hash <prefix>shared: "<version>:<value>".
-- ARGV: key, value, expected version ("" for any; 0: it must not exist). Returns the new version, nil for a lost race.
local prefix, key = KEYS[1], ARGV[1]
local present = redis.call('HGET', prefix .. 'shared', key)
local version = present and tonumber(string.match(present, '^(%d+):')) or 0
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= version then
    return false
end
redis.call('HSET', prefix .. 'shared', key, string.format('%.0f:', version + 1) .. ARGV[2])
redis.call('PUBLISH', prefix .. 'shared', key)
return version + 1
