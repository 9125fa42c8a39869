--! use record
-- of_job: the ids of all waiting runs of a job, held ones included, if there are not many. Changes nothing.
--
-- ARGV: the job, the most to return. Returns the ids, or nil if there are more.
local planned, submitted = P .. 'plan:' .. ARGV[1], P .. 'job:' .. ARGV[1]
if call('SCARD', planned) + call('SCARD', submitted) > tonumber(ARGV[2]) then return false end
return call('SUNION', planned, submitted)
