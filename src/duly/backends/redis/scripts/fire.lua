--! use clock add_runs jobs
--! lazy job_counters
-- fire: advances cursors and inserts runs, one atomic step per firing, in order.
--
-- ARGV: now or '', shard, epoch, firings (msgpack: name, uid, revision, expected cursor, cursor or false, time to plan or
-- false, number of runs, and the shard to move the job to, if any), then all their runs as in `put` (three).
-- Does nothing under an epoch that is not the installed one. A firing applies if uid, revision and cursor are as expected
-- and the job may be planned; then those of its runs are inserted that are new. A repeat finds the cursor moved.
-- Returns 0 for a stale epoch, otherwise the results in one string: 1 applied, 0 stale.
if call('HGET', P .. 'epochs', ARGV[2]) ~= ARGV[3] then return 0 end
local now = now_or(ARGV[1])
local firings, list = cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])
local names, jobs, results = {}, {}, {}
for i, firing in ipairs(firings) do names[i] = firing[1] end
for i, text in ipairs(get_many(JOBS, names)) do
    if text and not jobs[names[i]] then jobs[names[i]] = read_job(text) end
end
local from = 1
for i, firing in ipairs(firings) do
    local job, number = jobs[firing[1]], firing[7]
    if job and job.uid == firing[2] and job.revision == firing[3] and job.cursor == firing[4] and job.active then
        job.cursor, job.plan_at, job.moved = firing[5] or nil, firing[6] or nil, true
        if firing[8] and not is_apart(job) then move_job(firing[1], job, firing[8]) end
        results[i] = '1'
    else
        results[i] = '0'
        for k = from, from + number - 1 do list[k * 5 - 1] = false end
    end
    from = from + number
end
local extras = cmsgpack.unpack(ARGV[7])
local refused = add_runs(list, ARGV[6], extras, now)
from = 1
for i, firing in ipairs(firings) do
    local job = jobs[firing[1]]
    for k = from, from + firing[7] - 1 do
        local extra = extras[list[k * 5 - 4]]
        local ended = extra and extra[1] ~= PENDING
        if results[i] == '1' and not refused[k] and not ended then job.planned = job.planned + 1 end
    end
    from = from + firing[7]
end
local records, shards = {}, {}
for name, job in pairs(jobs) do
    if job.moved then
        records[#records + 1] = name
        records[#records + 1] = write_job(job)
        if job.cursor and job.plan_at then
            append_pair(shards, job.shard, job.plan_at, name)
        else
            leave_shard(name, job.shard)
        end
    end
end
call_many('HSET', JOBS, records)
if call('EXISTS', P .. 'tallies') == 1 then lazy().add_pending_counters(2 * #firings) end
for shard, members in pairs(shards) do
    call_many('ZADD', P .. 'due:' .. shard, members)
    if shard ~= 'main' then call('SADD', P .. 'shards', shard) end
end
return table.concat(results)
