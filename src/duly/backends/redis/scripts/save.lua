--! use clock job_runs add_runs
-- save: applies each change whose expected revision is the stored one; one atomic step each, in order.
--
-- ARGV: now or '', then for each change: name, expected revision ('' for none), whether it moves the cursor ('1'), what
-- becomes of waiting runs (keep, drop, rewind, cancel), the record, and its ledger as in `put` (three).
-- Cursor and time to plan stay as stored unless moved; so does the count of planned runs, less what is deleted.
-- A repeat is a lost race. Returns for each the record as stored, '' for a lost race.
-- The duration depends on the number of the job's waiting runs.
local now = now_or(ARGV[1])
local saved = {}
for at = 2, #ARGV, 8 do
    local name, expect, moves, waiting = ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1', ARGV[at + 3]
    local text = call('HGET', JOBS, name)
    local stored = text and read_job(text)
    if (stored and format('%d', stored.revision) or '') ~= expect then
        saved[#saved + 1] = ''
    else
        local job = read_job(ARGV[at + 4])
        if stored then
            job.planned = stored.planned
            if not moves then job.cursor, job.plan_at = stored.cursor, stored.plan_at end
            if waiting ~= 'keep' then
                local deleted, earliest = clear_waiting(name, job.uid, waiting == 'cancel', now)
                job.planned = job.planned - deleted
                if waiting == 'rewind' and earliest then job.cursor, job.plan_at = earliest, now end
            end
            if not is_apart(job) and not is_apart(stored) then job.shard = stored.shard end
            if stored.shard ~= job.shard then call('ZREM', P .. 'due:' .. stored.shard, name) end
        end
        text = write_job(job)
        call('HSET', JOBS, name, text)
        call(job.blocked and 'SADD' or 'SREM', P .. 'blocked', name)
        index_job(name, job)
        local ledger = cmsgpack.unpack(ARGV[at + 5])
        if #ledger > 0 then add_runs(ledger, ARGV[at + 6], cmsgpack.unpack(ARGV[at + 7]), now) end
        saved[#saved + 1] = text
    end
end
notify()
return saved
