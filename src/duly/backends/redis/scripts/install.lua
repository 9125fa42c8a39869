-- install: makes a new leader's epoch known: the greater of the proposed one and one more than the present.
--
-- ARGV: shard, proposed epoch. Returns the epoch. A repeat is a newer leader.
local key = KEYS[1] .. 'epochs'
local epoch = math.max(tonumber(ARGV[2]), tonumber(redis.call('HGET', key, ARGV[1]) or '0') + 1)
redis.call('HSET', key, ARGV[1], string.format('%.0f', epoch))
return epoch
