--! use clock job_runs add_runs job_index logs
--! const KEPT_DEFINITIONS 50
-- save: applies each change whose expected revision is the stored one; one atomic step each, in order.
--
-- ARGV: now or '', then for each change: name, expected revision ('' for none), whether it moves the cursor ('1'), what
-- becomes of waiting runs (keep, drop, rewind, cancel), the record, its ledger as in `put` (three), its place in the index,
-- whether it redefines a job of code ('1'): then what is known about deployed definitions is emptied; and the definition that
-- it replaces ('' for none), which is appended to the log of that name's definitions.
-- Cursor and time to plan stay as stored unless moved; so does the count of planned runs, less what is deleted.
-- A repeat is a lost race. Returns for each the record as stored, '' for a lost race.
-- The duration depends on the number of the job's waiting runs.
local now = now_or(ARGV[1])
local saved = {}
for at = 2, #ARGV, 11 do
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
            if stored.shard ~= job.shard then leave_shard(name, stored.shard) end
        end
        text = write_job(job)
        call('HSET', JOBS, name, text)
        call(job.blocked and 'SADD' or 'SREM', P .. 'blocked', name)
        index_job(name, job)
        index(name, ARGV[at + 8], stored and stored.rest)
        if ARGV[at + 9] == '1' then
            local known = call('HGET', P .. 'kind:deployed', 'code')
            call('HSET', P .. 'kind:deployed', 'code', pack('>I8', (known and unpack_from('>I8', known) or 0) + 1))
        end
        if ARGV[at + 10] ~= '' then
            append_to_log('definitions:' .. name, { ARGV[at + 10] }, 1, KEPT_DEFINITIONS, now)
        end
        local ledger = cmsgpack.unpack(ARGV[at + 5])
        if #ledger > 0 then add_runs(ledger, ARGV[at + 6], cmsgpack.unpack(ARGV[at + 7]), now) end
        saved[#saved + 1] = text
    end
end
notify()
return saved
