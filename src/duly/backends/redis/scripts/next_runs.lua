--! use id_lists
-- next_runs: the ids of the waiting runs of some jobs, held ones included. Changes nothing.
--
-- ARGV: the most submitted runs to return for a job, then the jobs. Returns the ids in one list, some of which may no longer
-- wait, and the jobs that have more submitted ones.
local most, ids, rest = tonumber(ARGV[1]), {}, {}
for at = 2, #ARGV do
    local submitted = P .. 'job:' .. ARGV[at]
    if call('SCARD', submitted) > most then
        rest[#rest + 1] = ARGV[at]
    else
        for _, id in ipairs(call('SMEMBERS', submitted)) do ids[#ids + 1] = id end
    end
    for _, id in ipairs(list_ids(call('HGET', SCHEDULE_LISTS, ARGV[at]))) do ids[#ids + 1] = id end
end
return { ids, rest }
