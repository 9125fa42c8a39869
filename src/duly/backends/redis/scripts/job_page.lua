--! use job_index
-- job_page: a slice of the jobs by name. Changes nothing.
--
-- ARGV: the name after which to begin, the most to return. Returns names and records; nil if the index is incomplete.
if missing_names() ~= 0 then return false end
local names = call('ZRANGEBYLEX', NAMES, '(' .. ARGV[1], '+', 'LIMIT', 0, math.min(tonumber(ARGV[2]), 1000))
if #names == 0 then return { {}, {} } end
return { names, call('HMGET', JOBS, unpack(names)) }
