-- Names and formats that all scripts share. The package's docstring describes all keys.
--
-- Body: the run as it was put, in msgpack, of which scripts read only the first fields. Its traits are one byte at a
-- fixed offset: 1 in a group, 2 with a dedupe key, 4 of a schedule, 8 a range, 16 ended when put, 32 held when put,
-- 64 to be started by a certain time.
-- Status: what has become of the run; there is none until it is claimed, held or ended. Numbers at fixed offsets, then
-- node, hold, reason, progress, and a tail that scripts do not read (result and failure). Its flags: 1 to be cancelled,
-- 2 has a group or a dedupe key, 4 has progress, 8 says only that the run is held, 16 claimed by the node that it was
-- assigned to.
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
--! const RESERVING 2
--! const HAS_PROGRESS 4
--! const ONLY_HELD 8
--! const ASSIGNED 16
--! const UNPLACED 'place'
-- The sorted sets of scheduled runs have this character before their names, so that a claim can take from both kinds
-- (`rules.sharing`). Version 0.1.0 put scheduled runs into the other sets: they are found there, too. Its claims fail when
-- they find a marked set, and a run that it cancels stays there: while its nodes are alive, no run is put into one.
--! const MARK '!'
--! const MARK_BYTE 33
--! const CREATED_AT 5
--! const PLACE_AT 14
--! const TRAITS_AT 22
--! const HANDLER_AT 22
--! const PLACES 16777216
--! const NODE_AT 58
--! const STATUS '>BBBBI8Bi8BI4BI4Bi8Bi8BI8'
--! const NIL '\192'
--! const NIL_BYTE 192
--! const MAX_ARGUMENTS 4000
-- Servers keep a small set or hash as one flat list and search it from end to end, unless a name in it is longer than
-- 64 bytes. With this name in it, a set of some hundred members is hashed at once, and a lookup costs a tenth.
--! const LONG_NAME '================================================================='
local byte, sub, format = string.byte, string.sub, string.format
local pack, unpack_from = struct.pack, struct.unpack
local encode, decode_some = cmsgpack.pack, cmsgpack.unpack_limit
local call, P = redis.call, KEYS[1]
local RUNS, STATUSES, META = P .. 'runs', P .. 'lives', P .. 'meta'
local WAITING, RUNNING_SET, TOUCHED = P .. 'waiting:', P .. 'running', P .. 'touched'

-- Handler, job, queue key and group of a body, and where they end; nil if it cannot be decoded. The caller has taken such a
-- run out of its index, so its id is stored for the doctor.
local function read_head(id, body)
    local ok, to, handler, job, queue_key, group = pcall(decode_some, body, 4, HANDLER_AT)
    if ok and handler and queue_key then return handler, job or handler, queue_key, group, to end
    call('SADD', P .. 'damaged', id)
end

-- The queue in a queue key, whose first character is the priority; and the node: '' for a run that is not yet assigned,
-- nil for one that any node may take.
local function split_queue_key(queue_key)
    local sign = string.find(queue_key, '@', 2, true)
    if not sign then return sub(queue_key, 2) end
    return sub(queue_key, 2, sign - 1), sub(queue_key, sign + 1)
end

-- Calls a variadic command with any number of arguments, in slices that fit on Lua's stack. Their size is even, so that
-- pairs stay together.
local function call_many(command, key, arguments)
    for from = 1, #arguments, MAX_ARGUMENTS do
        call(command, key, unpack(arguments, from, math.min(from + MAX_ARGUMENTS - 1, #arguments)))
    end
end

local function get_many(key, fields)
    if #fields <= MAX_ARGUMENTS then return call('HMGET', key, unpack(fields)) end
    local values = {}
    for from = 1, #fields, MAX_ARGUMENTS do
        local some = call('HMGET', key, unpack(fields, from, math.min(from + MAX_ARGUMENTS - 1, #fields)))
        for i = 1, #some do values[from + i - 1] = some[i] end
    end
    return values
end
