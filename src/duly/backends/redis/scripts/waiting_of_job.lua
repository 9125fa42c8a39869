--! use id_lists
-- waiting_of_job: the ids of all waiting runs of a job, held ones included, if there are not many. Changes nothing.
--
-- ARGV: the job, the most to return. Returns the ids, or nil if there are more. Some may no longer wait.
local submitted = P .. 'job:' .. ARGV[1]
if call('SCARD', submitted) > tonumber(ARGV[2]) then return false end
local ids = call('SMEMBERS', submitted)
for _, id in ipairs(list_ids(call('HGET', SCHEDULE_LISTS, ARGV[1]))) do ids[#ids + 1] = id end
return ids
