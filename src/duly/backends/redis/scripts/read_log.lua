-- read_log: the entries of a log with a number greater than a given one. Changes nothing.
--
-- ARGV: the log, that number, how many at most. Returns the number of the first, and the entries.
local gone = tonumber(redis.call('HGET', KEYS[1] .. 'gone', ARGV[1])) or 0
local start = math.max(0, tonumber(ARGV[2]) - gone)
return {gone + start + 1, redis.call('LRANGE', KEYS[1] .. 'log:' .. ARGV[1], start, start + tonumber(ARGV[3]) - 1)}
