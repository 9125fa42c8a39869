--! use id_lists
-- runs_of_job: the ids of a job's waiting and running runs, and of its newest ended ones. Changes nothing.
--
-- ARGV: the job, the most to look at. Returns nil if more than that wait, or run for all jobs; else the ids of waiting and
-- running runs (some may have moved on), those of the list `recent:<job>`, and since when every end is in such a list.
local job, most = ARGV[1], tonumber(ARGV[2])
local submitted = P .. 'job:' .. job
if call('SCARD', submitted) + call('ZCARD', RUNNING_SET) > most then return false end
local ids = call('SMEMBERS', submitted)
for _, id in ipairs(list_ids(call('HGET', SCHEDULE_LISTS, job))) do ids[#ids + 1] = id end
local running = call('ZRANGE', RUNNING_SET, 0, -1)
for i, body in ipairs(#running > 0 and get_many(RUNS, running) or {}) do
    if body then
        local ok, _, handler, its_job = pcall(decode_some, body, 2, HANDLER_AT)
        if ok and (its_job or handler) == job then ids[#ids + 1] = running[i] end
    end
end
return { ids, call('LRANGE', P .. 'recent:' .. job, 0, -1), call('HGET', META, 'recent') or '+inf' }
