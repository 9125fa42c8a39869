--! use clock jobs
-- due: the jobs of a shard whose time to plan has come, earliest first, and the next time after those. Changes nothing.
--
-- None while the store is frozen ('*' is paused).
-- ARGV: now or '', shard, limit. Returns the names, their records, and the time or ''.
local key, limit = P .. 'due:' .. ARGV[2], math.min(tonumber(ARGV[3]), 3000)
if call('SISMEMBER', P .. 'paused', '*') == 1 then return { {}, {}, '' } end
local names = call('ZRANGEBYSCORE', key, '-inf', now_or(ARGV[1]), 'LIMIT', 0, limit)
local following = call('ZRANGE', key, #names, #names, 'WITHSCORES')[2] or ''
if #names == 0 then return { {}, {}, following } end
return { names, call('HMGET', JOBS, unpack(names)), following }
