--! use rosters
--! const START 8
-- Reading and writing the records of a run, for what is done to one at a time.

-- What the names of the sets begin with in which a run waits and is queued: MARK for a run of a schedule, unless nodes of 0.1.0
-- have to find it (`Run.legacy`). Those, and what 0.1.0 wrote itself, end with nil.
local function mark_of(body)
    return byte(body, TRAITS_AT) % RANGED >= SCHEDULED and byte(body, #body) ~= NIL_BYTE and MARK or ''
end

-- The parts of a body that decide what happens to a run.
local function read_body(body)
    local _, handler, job, lane, group, limit, when_full, dedupe, cause, index, due, ready, uid =
        decode_some(body, 12, HANDLER_AT)
    return {
        traits = byte(body, TRAITS_AT), mark = mark_of(body), handler = handler, job = job or handler, lane = lane, group = group,
        limit = limit, when_full = when_full, dedupe = dedupe, due = due, ready = ready or due, uid = uid or '',
    }
end

local function read_life(text)
    local _, state, flags, _, fence, _, ready, _, failures, _, losses, _, started, _, finished, _, request =
        unpack_from(LIFE, text)
    local at, node, hold, reason = decode_some(text, 3, NODE_AT)
    return {
        state = state, flags = flags, fence = fence, ready = ready, failures = failures, losses = losses,
        started = started, finished = finished, request = request, node = node, hold = hold, reason = reason,
        tail = sub(text, at + 1),
    }
end

-- Whether a run must start by a certain time and has been ready for more than a second: less than that is never too late.
local function may_be_missed(body, ready, now)
    return byte(body, TRAITS_AT) >= TIMED and ready + LATE < now
end

-- Whether a run that is to enter its group is too late for that (`rules.misfires`).
local function is_missed(body, ready, now)
    return may_be_missed(body, ready, now) and unpack_from('>i8', body, #body - START) < now
end

-- A run is not to start by a certain time any more.
local function excuse(id, body)
    local traits = byte(body, TRAITS_AT)
    if traits < TIMED then return body end
    body = sub(body, 1, TRAITS_AT - 1) .. string.char(traits - TIMED) .. sub(body, TRAITS_AT + 1)
    call('HSET', RUNS, id, body)
    return body
end

local function new_life(ready)
    return {
        state = PENDING, flags = 0, fence = 0, ready = ready, failures = 0, losses = 0, started = 0, finished = 0,
        request = 0, tail = NIL .. NIL .. NIL,
    }
end

local function write_life(life)
    return pack(LIFE, 0x9f, life.state, life.flags, 0xcf, life.fence, 0xd3, life.ready, 0xce, life.failures,
        0xce, life.losses, 0xd3, life.started, 0xd3, life.finished, 0xcf, life.request)
        .. encode(life.node) .. encode(life.hold) .. encode(life.reason) .. life.tail
end

local function save_life(id, life)
    call('HSET', LIVES, id, write_life(life))
end

-- The waiting runs of a job are listed: those of its schedule on a roster, which a claim leaves as it is, those that were
-- submitted in a set.
local function enlist(id, run)
    if bit.band(run.traits, SCHEDULED) ~= 0 then
        join(PLANS, run.job, id)
    else
        call('SADD', P .. 'job:' .. run.job, id)
    end
end

local function delist(id, run)
    if bit.band(run.traits, SCHEDULED) ~= 0 then
        leave(PLANS, run.job, id)
    else
        call('SREM', P .. 'job:' .. run.job, id)
    end
end
