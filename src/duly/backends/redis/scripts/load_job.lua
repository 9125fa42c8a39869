--! use job_index
-- load_job: stores the record of a job of another store, or deletes one.
--
-- ARGV: name, record ('' to delete it), its place in the index.
local name = ARGV[1]
local text = call('HGET', JOBS, name)
local stored = text and read_job(text)
if stored then leave_shard(name, stored.shard) end
if ARGV[2] == '' then
    if stored then unindex(name, stored.rest) end
    call('HDEL', JOBS, name)
    call('ZREM', NAMES, name)
    call('SREM', P .. 'blocked', name)
else
    local job = read_job(ARGV[2])
    call('HSET', JOBS, name, ARGV[2])
    call(job.blocked and 'SADD' or 'SREM', P .. 'blocked', name)
    index_job(name, job)
    index(name, ARGV[3], stored and stored.rest)
end
