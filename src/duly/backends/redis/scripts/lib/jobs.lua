--! use layout
-- Jobs: a record is numbers at fixed offsets, uid and shard, then the rest, which scripts do not read.
-- Flags: 1 may be planned if it has a cursor, 2 its runs may not start, 4 has a cursor, 8 has a time to plan.
local JOBS = P .. 'jobs'
--! const JOB '>I4Bi8i8i8'
--! const JOB_UID_AT 29
--! const ACTIVE 1
--! const BLOCKED 2
--! const HAS_CURSOR 4
--! const HAS_PLAN 8

local function read_job(text)
    local revision, flags, cursor, plan_at, planned = unpack_from(JOB, text)
    local at, uid, shard = decode_some(text, 2, JOB_UID_AT)
    return {
        revision = revision, active = bit.band(flags, ACTIVE) ~= 0, blocked = bit.band(flags, BLOCKED) ~= 0,
        cursor = bit.band(flags, HAS_CURSOR) ~= 0 and cursor or nil,
        plan_at = bit.band(flags, HAS_PLAN) ~= 0 and plan_at or nil,
        planned = planned, uid = uid, shard = shard, rest = sub(text, at + 1),
    }
end

local function write_job(job)
    local flags = (job.active and ACTIVE or 0) + (job.blocked and BLOCKED or 0)
        + (job.cursor and HAS_CURSOR or 0) + (job.plan_at and HAS_PLAN or 0)
    return pack(JOB, job.revision, flags, job.cursor or 0, job.plan_at or 0, job.planned)
        .. encode(job.uid) .. encode(job.shard) .. job.rest
end

-- Removes a job from the planning index of a shard. `shards` lists those that have jobs, except for 'main'.
local function leave_shard(name, shard)
    call('ZREM', P .. 'due:' .. shard, name)
    if shard ~= 'main' and call('EXISTS', P .. 'due:' .. shard) == 0 then call('SREM', P .. 'shards', shard) end
end

-- Adds a job to the planning index of its shard, or removes it from there.
local function index_job(name, job)
    if job.active and job.cursor and job.plan_at then
        call('ZADD', P .. 'due:' .. job.shard, job.plan_at, name)
        if job.shard ~= 'main' then call('SADD', P .. 'shards', job.shard) end
    else
        leave_shard(name, job.shard)
    end
end

-- Whether only code can compute the job's schedule: such a job has its own shard.
local function is_apart(job)
    return sub(job.shard, 1, 4) == 'job:'
end

-- Moves a job to another shard; its caller adds it to the index there.
local function move_job(name, job, shard)
    if job.shard ~= shard then leave_shard(name, job.shard) end
    job.shard = shard
end
