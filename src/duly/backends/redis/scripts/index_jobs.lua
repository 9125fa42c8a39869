--! use job_index
-- index_jobs: corrects the index where a process of 0.1.0 has written. A repeat changes nothing.
--
-- ARGV: for each job: name, revision (-1 if it is gone), its place in the index, a place that it does not have ('' for none).
-- A job that has another revision by now is left alone.
for at = 1, #ARGV, 4 do
    local name, revision = ARGV[at], tonumber(ARGV[at + 1])
    local text = call('HGET', JOBS, name)
    local job = text and read_job(text)
    if (job and job.revision or -1) == revision then
        if ARGV[at + 3] ~= '' then call('ZREM', HANDLERS, ARGV[at + 3] .. '\0' .. name) end
        if job then
            index(name, ARGV[at + 2], job.rest)
        else
            call('ZREM', NAMES, name)
        end
    end
end
