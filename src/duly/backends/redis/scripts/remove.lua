--! use clock job_runs job_index notify logs
-- remove: deletes a job's record if it has the expected revision, with the log of its definitions and its waiting runs: those
-- not yet due are deleted, the others cancelled.
--
-- ARGV: now or '', name, expected revision. Returns 1 if it was deleted; a repeat returns 0.
local name = ARGV[2]
local text = call('HGET', JOBS, name)
local job = text and read_job(text)
if not job or job.revision ~= tonumber(ARGV[3]) then return 0 end
clear_waiting(name, job.uid, true, (now_or(ARGV[1])))
call('HDEL', JOBS, name)
call('SREM', P .. 'blocked', name)
leave_shard(name, job.shard)
unindex(name, job.rest)
call('ZREM', NAMES, name)
delete_log('definitions:' .. name)
if unheld > 0 then notify() end
return 1
