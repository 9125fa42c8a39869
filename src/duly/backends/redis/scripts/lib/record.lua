-- What a script knows of the two records of a run (see `layout` for the whole).
--
-- body: the run as it was put, msgpack of which only the first parts are ever read here. Its `traits` say at a fixed
-- place what is out of the ordinary: 1 in a group, 2 with a dedupe key, 4 of a schedule, 8 a range, 16 ended when put,
-- 32 held when put, 64 to be started by a certain time.
-- life: what became of it, absent until it is claimed, held or ended. Numbers at fixed places, then node, hold, reason
-- and progress, then a tail that no script reads. Its flags: 1 to be cancelled, 2 has a group or a dedupe key, 4 has
-- progress, 8 says nothing but that it is held, 16 was claimed by the node that it was assigned to.
--! const GROUPED 1
--! const DEDUPED 2
--! const SCHEDULED 4
--! const RANGED 8
--! const FINAL 16
--! const HELD 32
--! const TIMED 64
--! const LATE 1000000
--! const PENDING 0
--! const RUNNING 2
--! const COMPLETED 3
--! const FAILED 4
--! const CANCELLED 5
--! const LOST 6
--! const SKIPPED 7
--! const CANCELLING 1
--! const BOUND 2
--! const TOLD 4
--! const FRESH 8
--! const ASSIGNED 16
--! const UNPLACED 'place'
-- The sorted sets in which runs of a schedule wait or are queued have this sign before their names, so that a claim can take
-- from both kinds (`rules.sharing`). What 0.1.0 wrote is among the others, and what it must be able to read: its claims fail
-- when they find such a set, and a run that it cancels stays there (`mark_of`).
--! const MARK '!'
--! const MARK_BYTE 33
--! const CREATED_AT 5
--! const PLACE_AT 14
--! const TRAITS_AT 22
--! const HANDLER_AT 22
--! const PLACES 16777216
--! const NODE_AT 58
--! const LIFE '>BBBBI8Bi8BI4BI4Bi8Bi8BI8'
--! const NIL '\192'
--! const NIL_BYTE 192
--! const MOST_WORDS 4000
-- A name too long for what servers keep as one flat list to be searched from end to end: a set of some hundred members that
-- has this one too is hashed at once, and finding one of them costs a tenth.
--! const KEEL '================================================================='
local byte, sub, format = string.byte, string.sub, string.format
local pack, unpack_from = struct.pack, struct.unpack
local encode, decode_some = cmsgpack.pack, cmsgpack.unpack_limit
local call, P = redis.call, KEYS[1]
local RUNS, LIVES, META = P .. 'runs', P .. 'lives', P .. 'meta'
local WAITING, RUNNING_SET, TOUCHED = P .. 'waiting:', P .. 'running', P .. 'touched'

-- Handler, job, lane and group of a body; nil if it cannot be read. Such a run is in no index any more: it is noted, so that
-- the doctor finds it.
local function read_head(id, body)
    local ok, _, handler, job, lane, group = pcall(decode_some, body, 4, HANDLER_AT)
    if ok and handler and lane then return handler, job or handler, lane, group end
    call('SADD', P .. 'damaged', id)
end

-- The queue of a lane, whose first sign is the priority; and for whom it is: a node, '' for runs that are yet to be
-- placed, nil for anybody.
local function queue_of(lane)
    local sign = string.find(lane, '@', 2, true)
    if not sign then return sub(lane, 2) end
    return sub(lane, 2, sign - 1), sub(lane, sign + 1)
end

-- Variadic calls with any number of arguments, in pieces that fit on Lua's stack. An even number, so that pairs stay together.
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
