--! use now fence levels dozing
--! lazily promoting sharing
-- claim: queued → running for one node, by priority, ready time and id over the asked queues as if they were one; where
-- scheduled and other runs of one priority are queued, a share of it goes to scheduled ones (`sharing`).
--
-- ARGV: now or '', node, request, limit, lease in microseconds, queues and handlers (msgpack lists, '' for all), or
-- instead of handlers the name of a set of them (see `staff`); if that is not known, nothing happens and nil is returned;
-- and the bell as it was heard last, if whoever claims goes to sleep when there is no more for it (see `doze`), else ''.
-- Puts back first what was held for a handler that this node has, and promotes what is ready. What is ready in one priority
-- alone and can start here need not be queued for that; if it is more than a few, the rest is decided when its turn comes.
-- What is assigned to other nodes is left to them. What may not start here goes to its hold and does not count.
-- Each claim has a fence of its own, growing in the order of the claims.
-- A repeat of a request gives what that request lent and is still running, and nothing new; if there is none of that,
-- it is a new call. Looks at no more than a few thousand runs; `next due` is then in the past.
-- Returns now, expiry, the first fence, next due ('' if none), ids and ready times (flat), their bodies in one string,
-- number and life (flat) of those that had one, and the bell ('' if nobody goes to sleep). For a repeat: now, 0, 0, next
-- due, ids and expiries (flat), bodies, their lives, and ''.
--! const MOST 3000
--! const FEW 32

local now, server = now_or(ARGV[1])
local node, request = ARGV[2], tonumber(ARGV[3])
local limit, expires = tonumber(ARGV[4]), now + tonumber(ARGV[5])
local handlers
local staff = ARGV[8] ~= '' and P .. 'staff:' .. ARGV[8]
if ARGV[7] ~= '' then
    handlers = {}
    for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do handlers[name] = true end
elseif staff and call('EXISTS', staff) == 0 then
    return false
end

-- Which of these handlers this node has.
local function known_of(names)
    if staff then return call('SMISMEMBER', staff, unpack(names)) end
    local known = {}
    for i = 1, #names do known[i] = (not handlers or handlers[names[i]]) and 1 or 0 end
    return known
end

-- What this request lent before and is still running: any number may run, but a repeat is rare.
local last = tonumber(call('SET', P .. 'request:' .. node, ARGV[3], 'EX', 86400, 'GET') or -1)
if request <= last then
    call('SET', P .. 'request:' .. node, format('%.0f', last), 'EX', 86400)
    local ids, bodies, lives = {}, {}, {}
    local running = call('ZRANGE', RUNNING_SET, 0, -1)
    for i, text in ipairs(#running > 0 and get_many(LIVES, running) or {}) do
        local life = text and lazily().read_life(text)
        if life and life.node == node and life.request == request then
            ids[#ids + 1] = running[i]
            ids[#ids + 1] = call('ZSCORE', RUNNING_SET, running[i])
            bodies[#bodies + 1] = call('HGET', RUNS, running[i])
            lives[#lives + 1] = text
        end
    end
    if #ids > 0 then return { now, 0, 0, (look_ahead(now)), ids, table.concat(bodies), lives, '' } end
end

-- Whether there is anything out of the ordinary: one question instead of four, as long as there is not.
local rare = call('EXISTS', P .. 'unstaffed', P .. 'paused', P .. 'blocked', TOUCHED) > 0

-- Runs held for want of a handler come to a node that has it.
local unstaffed = rare and call('SMEMBERS', P .. 'unstaffed') or {}
local staffed = #unstaffed > 0 and known_of(unstaffed)
for i, handler in ipairs(unstaffed) do
    if staffed[i] == 1 then
        local key = HANDLER_HOLD .. handler
        local line = lazily().held_under(key, MOST)
        for i = 1, #line, 3 do lazily().unhold(line[i], key, line[i + 2], line[i + 1]) end
    end
end

-- The lanes to take from, listed by priority.
local lanes, planned, own, paused, wanted = {}, {}, {}, {}, nil
if ARGV[6] ~= '' then
    wanted = {}
    for _, queue in ipairs(cmsgpack.unpack(ARGV[6])) do wanted[queue] = true end
end
for _, queue in ipairs(rare and call('SMEMBERS', P .. 'paused') or {}) do paused[queue] = true end

-- Whether this node may take from a lane now.
local allowed = {}
local function may_take(lane)
    if allowed[lane] == nil then
        local queue, whose = queue_of(lane)
        allowed[lane] = (not whose or whose == node) and (not wanted or wanted[queue] == true) and not paused[queue]
        own[lane] = allowed[lane] and whose
    end
    return allowed[lane]
end

local function list_lanes()
    lanes, planned = {}, {}
    for _, name in ipairs(limit > 0 and call('SMEMBERS', P .. 'lanes') or {}) do
        local lane, kind = name, lanes
        if byte(name) == MARK_BYTE then lane, kind = sub(name, 2), planned end
        if may_take(lane) then
            local level = byte(lane) - 48
            kind[level] = kind[level] or {}
            table.insert(kind[level], name)
        end
    end
end

local function queue_ready()
    lazily().promote(MOST, now)
    list_lanes()
    rare = true -- what was held meanwhile is touched
end

list_lanes()
local due, ready_levels = look_ahead(now)
-- The priority whose runs start as they become ready: nothing else is ready to be queued, or queued before them, and they
-- all start now, or are more than a few.
local straight = limit > 0 and #ready_levels == 1 and ready_levels[1]
local ready_number = straight and call('ZCOUNT', WAITING .. straight, '-inf', now) or 0
if ready_number > math.min(limit, 1000) and ready_number <= FEW then straight = false end
for level = tonumber(straight and sub(straight, -1) or 10), 9 do
    if lanes[level] or planned[level] then straight = false end
end
if #ready_levels > 0 and not straight then queue_ready() end

-- Takes the first runs of lanes of one priority and kind: a flat list of id and ready time.
local function take(names, most)
    if #names > 1 then
        local prefix = P .. 'ready:'
        return lazily().take_all(prefix, names, lazily().first_of(prefix, names, now, most))
    end
    local key = P .. 'ready:' .. names[1]
    local taken = call('ZPOPMIN', key, most)
    local empty = #taken < most * 2
    -- Were the clock to step back, what was queued would be early again: it stays.
    while #taken > 0 and tonumber(taken[#taken]) > now do
        call('ZADD', key, table.remove(taken), table.remove(taken))
        empty = false
    end
    if empty then call('SREM', P .. 'lanes', names[1]) end
    return taken
end

local blocking = rare and call('EXISTS', P .. 'blocked') == 1
local touched = rare and call('EXISTS', TOUCHED) == 1
local n, looked_at = 0, 0
local ids, claimed, bodies, texts, old_lives = {}, {}, {}, {}, {}
local submitted, moved, again, placed = {}, {}, {}, {}

-- What claiming needs to know of some runs (a flat list of id and ready time): parallel lists.
local function read(taken)
    local some = { ids = {}, ready = {}, names = {}, jobs = {}, lanes = {}, groups = {} }
    if #taken == 0 then return some end
    for i = 1, #taken / 2 do some.ids[i], some.ready[i] = taken[i * 2 - 1], taken[i * 2] end
    some.bodies = call('HMGET', RUNS, unpack(some.ids))
    for i, body in ipairs(some.bodies) do
        local handler, job, lane, group
        if body then handler, job, lane, group = read_head(some.ids[i], body) end
        if handler then
            some.names[i], some.jobs[i], some.lanes[i], some.groups[i] = handler, job, lane, group
        else
            some.names[i], some.jobs[i], some.bodies[i] = '', '', false
        end
    end
    return some
end

-- Lends runs that are in no index any more, or holds them.
local function consider(some)
    local names, jobs = some.names, some.jobs
    if #names == 0 then return end
    local lives = touched and call('HMGET', LIVES, unpack(some.ids)) or {}
    local known = known_of(names)
    local blocked = blocking and call('SMISMEMBER', P .. 'blocked', unpack(jobs))
    for i, id in ipairs(some.ids) do
        local body, text = some.bodies[i], lives[i]
        if body then
            local job, lane = jobs[i], some.lanes[i]
            -- The hold under which this run must wait instead of starting here, if it must.
            local key = blocked and blocked[i] == 1 and 'job:' .. job
                or known[i] == 0 and (own[lane] and UNPLACED or HANDLER_HOLD .. names[i])
            if key then
                lazily().hold(id, lazily().read_body(body), text and lazily().read_life(text) or nil, key)
            else
                n = n + 1
                ids[n], bodies[n] = id, body
                claimed[n * 2 - 1], claimed[n * 2] = id, some.ready[i]
                if text then
                    old_lives[#old_lives + 1] = n
                    old_lives[#old_lives + 1] = text
                    texts[n] = text
                    again[#again + 1] = id
                end
                if byte(body, TRAITS_AT) % RANGED < SCHEDULED then
                    local members = submitted[job]
                    if members then
                        members[#members + 1] = id
                    else
                        submitted[job] = { id }
                    end
                end
                moved[lane] = (moved[lane] or 0) + 1
                placed[n] = own[lane]
            end
        end
    end
    looked_at = looked_at + #names
end

if straight then
    -- Takes the first ready runs of one priority, each alone in its group; nil, and they stay, if there is more to decide for
    -- one of them: its group is not empty, or it may be too late, or it is for others.
    local function take_ready(level, most)
        local key = WAITING .. level
        local taken = call('ZPOPMIN', key, math.min(most, ready_number))
        ready_number = ready_number - #taken / 2
        local some, rosters, joined, groups, back = read(taken), {}, { KEEL, '' }, {}, {}
        for _, group in pairs(some.groups) do groups[#groups + 1] = group end
        for i, text in ipairs(#groups > 0 and call('HMGET', P .. 'groups', unpack(groups)) or {}) do
            rosters[groups[i]] = text
        end
        for i, id in ipairs(some.ids) do
            local lane, group = some.lanes[i], some.groups[i]
            local undecided = group
                and (rosters[group] or byte(some.bodies[i], TRAITS_AT) >= TIMED and some.ready[i] + LATE < now)
            if lane and (not may_take(lane) or undecided) then
                for k, each in ipairs(some.ids) do back[k * 2 - 1], back[k * 2] = some.ready[k], each end
                call('ZADD', key, unpack(back))
                return nil
            elseif group then
                rosters[group] = ' ' .. id .. ' '
                joined[#joined + 1] = group
                joined[#joined + 1] = rosters[group]
            end
        end
        if #groups > 0 then call('HSET', P .. 'groups', unpack(joined)) end
        return some
    end

    while straight and n < limit and looked_at < MOST do
        local most = math.min(limit - n, 1000)
        local some = take_ready(straight, most)
        if some then
            consider(some)
            if #some.ids < most then break end
        else
            straight = false
            if looked_at == 0 then
                queue_ready()
            else
                lanes, planned = {}, {} -- promotion must not meet runs that are lent but not yet written: the next call goes on
            end
        end
    end
end
if next(lanes) ~= nil or next(planned) ~= nil then
    for level = 9, 0, -1 do
        local before = n
        while (lanes[level] or planned[level]) and n < limit and looked_at < MOST do
            local most, taken = math.min(limit - n, 1000), nil
            if lanes[level] and planned[level] then
                -- What scheduled runs have not had yet of their share of this priority, as far as this round must give it.
                local owed = lazily().share_of(limit - before, request) - math.max(0, limit - n - most)
                for i = before + 1, n do
                    if byte(bodies[i], TRAITS_AT) % RANGED >= SCHEDULED then owed = owed - 1 end
                end
                taken = lazily().take_both(P .. 'ready:', lanes[level], planned[level], now, most, owed)
            else
                taken = take(lanes[level] or planned[level], most)
            end
            consider(read(taken))
            if #taken < most * 2 then break end
        end
    end
end
if #ready_levels > 0 or looked_at > n then due = look_ahead(now) end -- a hold may have let somebody wait again
if looked_at >= MOST and n < limit then due = now end
local bell = ARGV[9] ~= '' and n < limit and due ~= now and doze(tonumber(ARGV[9])) or ''
if n == 0 then return { now, expires, 0, due, claimed, '', old_lives, bell } end

local first = last_fence(server) + 1
keep_fence(first + n - 1)
local life_args, running_args, until_text = {}, { 'inf', KEEL }, format('%.0f', expires)
local suffix = pack('>BI4BI4Bi8Bi8BI8', 0xce, 0, 0xce, 0, 0xd3, now, 0xd3, 0, 0xcf, request)
    .. encode(node) .. NIL .. NIL .. NIL .. NIL .. NIL
for i = 1, n do
    local k, fence, ready, text = i * 2, first + i - 1, claimed[i * 2], texts[i]
    local bound = (byte(bodies[i], TRAITS_AT) % SCHEDULED ~= 0 and BOUND or 0) + (placed[i] and ASSIGNED or 0)
    life_args[k - 1] = ids[i]
    if text then -- it goes on under the new claim
        local life = lazily().read_life(text)
        life.state, life.flags, life.fence, life.ready = RUNNING, bound + life.flags % BOUND, fence, tonumber(ready)
        life.node, life.request, life.started, life.finished, life.hold = node, request, now, 0, nil
        local at = decode_some(life.tail, 1, 0)
        life.tail = NIL .. sub(life.tail, at + 1)
        life_args[k] = lazily().write_life(life)
    else
        life_args[k] = pack('>BBBBI8Bi8', 0x9f, RUNNING, bound, 0xcf, fence, 0xd3, ready) .. suffix
    end
    running_args[k + 1], running_args[k + 2] = until_text, ids[i]
end
call_many('HSET', LIVES, life_args)
call_many('ZADD', RUNNING_SET, running_args)
if #again > 0 then call_many('SREM', TOUCHED, again) end
for job, members in pairs(submitted) do call_many('SREM', P .. 'job:' .. job, members) end
for lane, count in pairs(moved) do
    local queue = queue_of(lane)
    call('HINCRBY', P .. 'depths', 'w' .. queue, -count)
    call('HINCRBY', P .. 'depths', 'r' .. queue, count)
end
return { now, expires, first, due, claimed, table.concat(bodies), old_lives, bell }
