--! use clock waiting_sets new_claims
--! lazy promotion
-- begin: pending or queued → running for one node, by id: runs of schedules that the node has read before they were due.
--
-- ARGV: now or '', node, request, lease in microseconds, ids (msgpack, at most 1,000), and when each was created, in eight
-- bytes as in its body.
-- A run begins if it is ready, was created then, has never been claimed, is not held, may enter its group, may still start,
-- and is for this node or any, and if neither its job nor its queue is paused. Runs that have been ready for longer are
-- promoted first. A repeat of a request returns what that request claimed of these runs and is still running, and nothing
-- new; if there is none of that, it is a new request.
-- Returns now, expiry, the first fence, and the numbers of the runs that began, in order. For a repeat: now, 0, ids and
-- expiries (flat), their bodies in one string, their statuses.
--! const MAX_PROMOTED 3000
--! const CREATED_TO 12
--! const START 8

local now, server = now_or(ARGV[1])
local node, request, expires = ARGV[2], tonumber(ARGV[3]), now + tonumber(ARGV[4])
local wanted, created = cmsgpack.unpack(ARGV[5]), ARGV[6]
if #wanted == 0 then return { now, expires, 0, {} } end
if is_repeat(node, request) then
    local ids, bodies, statuses = claimed_before(node, request)
    local given = {}
    for _, id in ipairs(wanted) do given[id] = true end
    for i = 1, #ids, 2 do
        if given[ids[i]] then return { now, 0, ids, table.concat(bodies), statuses } end
    end
end

-- Runs that were ready before the first of these are promoted first.
local bodies, names, earliest = call('HMGET', RUNS, unpack(wanted)), {}, math.huge
local scores = {}

-- Reads the ready times of the runs that are pending, set by set.
local function read_scores()
    local by_set = {}
    for i, name in pairs(names) do
        by_set[name] = by_set[name] or {}
        table.insert(by_set[name], i)
    end
    for name, numbers in pairs(by_set) do
        local ids = {}
        for k, i in ipairs(numbers) do ids[k] = wanted[i] end
        for k, score in ipairs(call('ZMSCORE', WAITING .. name, unpack(ids))) do scores[numbers[k]] = score or nil end
    end
end

local some_heads = {}
for i, body in ipairs(bodies) do
    local head = body and sub(body, CREATED_AT, CREATED_TO) == sub(created, i * 8 - 7, i * 8) and head_in(wanted[i], body)
    if head then
        some_heads[i] = head
        names[i] = (byte(body, #body) ~= NIL_BYTE and MARK or '') .. sub(head.queue_key, 1, 1)
    end
end
read_scores()
for _, score in pairs(scores) do earliest = math.min(earliest, tonumber(score)) end
local first_ready = earliest_ready(now)
if first_ready ~= '' and tonumber(first_ready) < math.min(earliest, now) then
    lazy().promote(MAX_PROMOTED, now)
    scores = {}
    read_scores()
end

local rare = call('EXISTS', P .. 'paused', P .. 'blocked', TOUCHED) > 0
local texts = rare and call('HMGET', STATUSES, unpack(wanted)) or {}
local function is_paused(queue)
    return call('SISMEMBER', P .. 'paused', queue) == 1 or call('SISMEMBER', P .. 'paused', '*') == 1
end

-- Whether the runs of a head may start on this node now.
local function may_start(head)
    if head.open == nil then
        local queue, assignee = split_queue_key(head.queue_key)
        head.assigned = assignee
        head.open = (not assignee or assignee == node)
            and not (rare and is_paused(queue))
            and not (rare and call('SISMEMBER', P .. 'blocked', head.job) == 1)
        prepare(head)
    end
    return head.open
end

local members, groups = {}, {}
for _, head in pairs(some_heads) do
    if head.group and members[head.group] == nil then
        members[head.group] = false
        groups[#groups + 1] = head.group
    end
end
for i, text in ipairs(#groups > 0 and call('HMGET', P .. 'groups', unpack(groups)) or {}) do members[groups[i]] = text end

-- Whether a run is a member of its group or enters it now.
local joined = { LONG_NAME, '' }
local function enters(id, body, group)
    local text = members[group]
    if text then
        if lazy().list_has(text, id) then return true end
        if lazy().list_size(text) >= lazy().read_body(body).limit then return false end
    end
    members[group] = (text or ' ') .. id .. ' '
    joined[#joined + 1] = group
    joined[#joined + 1] = members[group]
    return true
end

-- The ready time of a run that another node has queued, if it is: then it leaves the set of queued runs.
local function take_queued(id, body, head)
    local name = (byte(body, #body) ~= NIL_BYTE and MARK or '') .. head.queue_key
    local score = call('ZSCORE', P .. 'ready:' .. name, id)
    return score, score and name
end

local ids, claimed, head_of, numbers, leaving, queued = {}, {}, {}, {}, {}, {}
for i, id in ipairs(wanted) do
    local head, body, ready, name = some_heads[i], bodies[i], scores[i], nil
    if head and not texts[i] and not ready then ready, name = take_queued(id, body, head) end
    local startable = head and ready and not texts[i] and tonumber(ready) <= now and may_start(head)
        and (head.traits < TIMED or unpack_from('>i8', body, #body - START) >= now)
    if startable and (not head.group or enters(id, body, head.group)) then
        local n = #ids + 1
        ids[n], head_of[n], numbers[n] = id, head, i
        claimed[n * 2 - 1], claimed[n * 2] = id, ready
        head.count = head.count + 1
        local set = name and queued or leaving
        set[name or names[i]] = set[name or names[i]] or {}
        table.insert(set[name or names[i]], id)
    end
end
if #ids == 0 then return { now, expires, 0, {} } end
for name, some in pairs(leaving) do call('ZREM', WAITING .. name, unpack(some)) end
for name, some in pairs(queued) do
    call('ZREM', P .. 'ready:' .. name, unpack(some))
    if call('EXISTS', P .. 'ready:' .. name) == 0 then call('SREM', P .. 'lanes', name) end
end
if #joined > 2 then call('HSET', P .. 'groups', unpack(joined)) end
return { now, expires, start_attempts(ids, claimed, head_of, {}, node, request, now, expires, server), numbers }
