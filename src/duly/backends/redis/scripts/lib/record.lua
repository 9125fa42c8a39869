-- What a script knows of the two records of a run (see `layout` for the whole).
--
-- body: the run as it was put, msgpack of which only the first parts are ever read here. Its `traits` say at a fixed
-- place what is out of the ordinary: 1 in a group, 2 with a dedupe key, 4 of a schedule, 8 a range, 16 ended when put.
-- life: what became of it, absent until it is claimed, held or ended. Numbers at fixed places, then node, hold, reason
-- and progress, then a tail that no script reads.
local byte, sub, format = string.byte, string.sub, string.format
local pack, unpack_from = struct.pack, struct.unpack
local encode, decode_some = cmsgpack.pack, cmsgpack.unpack_limit
local call, P = redis.call, KEYS[1]

local RUNS, LIVES, META = P .. 'runs', P .. 'lives', P .. 'meta'
local WAITING, RUNNING_SET, TOUCHED = P .. 'waiting', P .. 'running', P .. 'touched'
local GROUPED, DEDUPED, SCHEDULED, RANGED, FINAL = 1, 2, 4, 8, 16
local PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, LOST, SKIPPED = 0, 2, 3, 4, 5, 6, 7
-- Flags of a life: to be cancelled; has a group or a dedupe key; has progress; says nothing but that it is held.
local CANCELLING, BOUND, TOLD, FRESH = 1, 2, 4, 8

local PLACE_AT, TRAITS_AT, HANDLER_AT = 14, 22, 22
local PLACES = 16777216 -- places on a page: bytes, of which a page has some thousands
local NODE_AT = 58
local LIFE = '>BBBBI8Bi8BI4BI4Bi8Bi8BI8'
local NIL = '\192'

-- The parts of a body that decide what happens to a run.
local function read_body(body)
    local _, handler, job, lane, group, limit, when_full, dedupe, cause, index, due, ready, uid =
        decode_some(body, 12, HANDLER_AT)
    return {
        traits = byte(body, TRAITS_AT), handler = handler, job = job or handler, lane = lane, group = group,
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

-- Where the waiting runs of a job are listed: those of its schedule apart from those that were submitted.
local function list_of(run)
    return P .. (bit.band(run.traits, SCHEDULED) ~= 0 and 'plan:' or 'job:') .. run.job
end

local function queue_of(lane)
    return sub(lane, 2)
end

-- Variadic calls with any number of arguments, in pieces that fit on Lua's stack. An even number, so that pairs stay together.
local MOST_WORDS = 4000

local function call_many(command, key, words)
    for from = 1, #words, MOST_WORDS do
        call(command, key, unpack(words, from, math.min(from + MOST_WORDS - 1, #words)))
    end
end

local function get_many(key, fields)
    if #fields <= MOST_WORDS then return call('HMGET', key, unpack(fields)) end
    local values = {}
    for from = 1, #fields, MOST_WORDS do
        local some = call('HMGET', key, unpack(fields, from, math.min(from + MOST_WORDS - 1, #fields)))
        for i = 1, #some do values[from + i - 1] = some[i] end
    end
    return values
end
