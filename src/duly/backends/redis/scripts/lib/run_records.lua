--! use id_lists
--! const START 8
-- Reading and writing the records of one run at a time.

-- The fields of a body that decide what happens to a run, and the body itself.
local function read_body(body)
    local _, handler, job, queue_key, group, limit, when_full, dedupe, cause, index, due, ready, uid =
        decode_some(body, 12, HANDLER_AT)
    return {
        body = body, traits = byte(body, TRAITS_AT), handler = handler, job = job or handler, queue_key = queue_key,
        group = group, limit = limit, when_full = when_full, dedupe = dedupe, due = due, ready = ready or due,
        uid = uid or '',
    }
end

local function read_status(text)
    local _, state, flags, _, fence, _, ready, _, failures, _, losses, _, started, _, finished, _, request =
        unpack_from(STATUS, text)
    local at, node, hold, reason = decode_some(text, 3, NODE_AT)
    local after = decode_some(text, 1, at)
    return {
        state = state, flags = flags, fence = fence, ready = ready, failures = failures, losses = losses,
        started = started, finished = finished, request = request, node = node, hold = hold, reason = reason,
        progress = sub(text, at + 1, after), tail = sub(text, after + 1),
    }
end

local function new_status(ready)
    return {
        state = PENDING, flags = 0, fence = 0, ready = ready, failures = 0, losses = 0, started = 0, finished = 0,
        request = 0, progress = NIL, tail = NIL .. NIL,
    }
end

local function write_status(status)
    return pack(STATUS, 0x9f, status.state, status.flags, 0xcf, status.fence, 0xd3, status.ready, 0xce,
        status.failures, 0xce, status.losses, 0xd3, status.started, 0xd3, status.finished, 0xcf, status.request)
        .. encode(status.node) .. encode(status.hold) .. encode(status.reason) .. status.progress .. status.tail
end

local function store_status(id, status)
    call('HSET', STATUSES, id, write_status(status))
end

-- Makes the status of a waiting run that of a new attempt. Only a wish to cancel stays of its flags.
local function start_attempt(status, flags, fence, node, request, now)
    status.state, status.flags, status.fence = RUNNING, flags + status.flags % RESERVING, fence
    status.node, status.request, status.started, status.finished = node, request, now, 0
    status.hold, status.progress = nil, NIL
end

-- Body and status of a run, decoded; nil if it does not exist.
local function load_run(id)
    local body = call('HGET', RUNS, id)
    if not body then return nil end
    local status = call('HGET', STATUSES, id)
    return read_body(body), status and read_status(status) or nil
end

-- Marks the name of a set if a run with these traits is of a schedule.
local function marked(name, traits)
    return traits % RANGED >= SCHEDULED and MARK .. name or name
end

-- Whether a run must start by a certain time and has been ready for more than a second: less is never too late.
local function may_be_missed(body, ready, now)
    return byte(body, TRAITS_AT) >= TIMED and ready + LATE < now
end

-- Whether a run is too late to enter its group (`rules.misfires`).
local function is_missed(body, ready, now)
    return may_be_missed(body, ready, now) and unpack_from('>i8', body, #body - START) < now
end

-- Removes the time by which a run must start.
local function lift_start_limit(id, run)
    if run.traits < TIMED then return end
    run.traits = run.traits - TIMED
    run.body = sub(run.body, 1, TRAITS_AT - 1) .. string.char(run.traits) .. sub(run.body, TRAITS_AT + 1)
    call('HSET', RUNS, id, run.body)
end

-- The waiting runs of a job: scheduled ones are in an id list, which a claim leaves alone, submitted ones in a set.
local function add_to_job(id, run)
    if bit.band(run.traits, SCHEDULED) ~= 0 then
        add_to_list(SCHEDULE_LISTS, run.job, id)
    else
        call('SADD', P .. 'job:' .. run.job, id)
    end
end

local function remove_from_job(id, run)
    if bit.band(run.traits, SCHEDULED) ~= 0 then
        remove_from_list(SCHEDULE_LISTS, run.job, id)
    else
        call('SREM', P .. 'job:' .. run.job, id)
    end
end
