-- install_epoch: installs a new leader's epoch: the proposed one, or one more than the present, whichever is greater.
--
-- ARGV: shard, proposed epoch. Returns the epoch. A repeat counts as a newer leader.
local key = KEYS[1] .. 'epochs'
local epoch = math.max(tonumber(ARGV[2]), tonumber(redis.call('HGET', key, ARGV[1]) or '0') + 1)
redis.call('HSET', key, ARGV[1], string.format('%.0f', epoch))
return epoch
