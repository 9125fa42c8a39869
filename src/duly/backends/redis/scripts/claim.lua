--! use clock waiting_sets register_sleeper new_claims
--! lazy promotion shares
-- claim: queued → running for one node, by priority, ready time and id over the given queues as if they were one. Where
-- scheduled and other runs of one priority are queued, a share of the claim goes to scheduled ones (`shares`).
--
-- ARGV: now or '', node, request, limit, lease in microseconds, queues and handlers (msgpack lists, '' for all), or instead
-- of handlers the digest of a set of them (`store_handler_set`): if the server does not have that set, nothing happens and
-- the result is nil; and the count of wake-ups that the caller saw last, if it goes to sleep when there is no more work for
-- it (`register_sleeper`), else ''.
-- First releases the runs that are held for a handler which this node has, and promotes what is ready. Runs assigned to
-- other nodes are left to them. A run that may not start here is held instead, and does not count.
-- Each claim has its own fence, growing in the order of the claims.
-- A repeat of a request returns what that request claimed and is still running, and nothing new; if there is none of that,
-- it is a new request. Reads no more than a few thousand runs; if more remains, `next due` lies in the past.
-- Returns now, expiry, the first fence, next due ('' if none), ids and ready times (flat), their bodies in one string,
-- number and previous status (flat) of those that had one, and the count of wake-ups ('' if the caller does not go to
-- sleep). For a repeat: now, 0, 0, next due, ids and expiries (flat), bodies, their statuses, and ''.
--! const MAX_READ 3000
--! const SMALL_BATCH 32

local now, server = now_or(ARGV[1])
local node, request = ARGV[2], tonumber(ARGV[3])
local limit, expires = tonumber(ARGV[4]), now + tonumber(ARGV[5])
local handlers
local handler_set = ARGV[8] ~= '' and P .. 'staff:' .. ARGV[8]
if ARGV[7] ~= '' then
    handlers = {}
    for _, name in ipairs(cmsgpack.unpack(ARGV[7])) do handlers[name] = true end
elseif handler_set and call('EXISTS', handler_set) == 0 then
    return false
end

-- Which of these handlers this node has: 1 or 0 for each.
local function has_handlers(names)
    if handler_set then return call('SMISMEMBER', handler_set, unpack(names)) end
    local known = {}
    for i = 1, #names do known[i] = (not handlers or handlers[names[i]]) and 1 or 0 end
    return known
end

if is_repeat(node, request) then
    local ids, bodies, statuses = claimed_before(node, request)
    if #ids > 0 then return { now, 0, 0, (earliest_ready(now)), ids, table.concat(bodies), statuses, '' } end
end

-- Held, paused, blocked or retried runs are rare: one EXISTS answers for all four as long as there are none.
local rare = call('EXISTS', P .. 'unstaffed', P .. 'paused', P .. 'blocked', TOUCHED) > 0

-- Release the runs that are held for a handler which this node has.
local missing = rare and call('SMEMBERS', P .. 'unstaffed') or {}
local present = #missing > 0 and has_handlers(missing)
for i, handler in ipairs(missing) do
    if present[i] == 1 then lazy().unhold_all(HANDLER_HOLD .. handler, MAX_READ) end
end

-- The names of the sets of queued runs to take from, by priority: of submitted runs, and of scheduled ones.
local ready_sets, scheduled_sets = {}, {}
local own, paused, wanted = {}, {}, nil
if ARGV[6] ~= '' then
    wanted = {}
    for _, queue in ipairs(cmsgpack.unpack(ARGV[6])) do wanted[queue] = true end
end
for _, queue in ipairs(rare and call('SMEMBERS', P .. 'paused') or {}) do paused[queue] = true end

-- Whether this node may take runs with this queue key now.
local allowed = {}
local function may_take(queue_key)
    if allowed[queue_key] == nil then
        local queue, assignee = split_queue_key(queue_key)
        allowed[queue_key] = (not assignee or assignee == node) and (not wanted or wanted[queue] == true)
            and not paused[queue] and not paused['*']
        own[queue_key] = allowed[queue_key] and assignee
    end
    return allowed[queue_key]
end

local function list_ready_sets()
    ready_sets, scheduled_sets = {}, {}
    for _, name in ipairs(limit > 0 and call('SMEMBERS', P .. 'lanes') or {}) do
        local queue_key, sets = name, ready_sets
        if byte(name) == MARK_BYTE then queue_key, sets = sub(name, 2), scheduled_sets end
        if may_take(queue_key) then
            local priority = byte(queue_key) - 48
            sets[priority] = sets[priority] or {}
            table.insert(sets[priority], name)
        end
    end
end

local function promote_ready()
    lazy().promote(MAX_READ, now)
    list_ready_sets()
    rare = true -- promotion may have held runs
end

list_ready_sets()
local due, ready_now = earliest_ready(now)
-- The fast path: runs of one set start from where they wait, without being queued first. Only if no other set has ready
-- runs, none of the same or a higher priority is queued, and all of them start now or they are more than a few.
local direct = limit > 0 and #ready_now == 1 and ready_now[1]
local direct_count = direct and call('ZCOUNT', WAITING .. direct, '-inf', now) or 0
if direct_count > math.min(limit, 1000) and direct_count <= SMALL_BATCH then direct = false end
for priority = tonumber(direct and sub(direct, -1) or 10), 9 do
    if ready_sets[priority] or scheduled_sets[priority] then direct = false end
end
if #ready_now > 0 and not direct then promote_ready() end

-- Takes the first runs of sets of one priority and kind: a flat list of id and ready time.
local function take(names, most)
    if #names > 1 then
        local prefix = P .. 'ready:'
        return lazy().take_all(prefix, names, lazy().first_of(prefix, names, now, most))
    end
    local key = P .. 'ready:' .. names[1]
    local taken = call('ZPOPMIN', key, most)
    local empty = #taken < most * 2
    -- If the clock went back, a queued run may be early again: put it back.
    while #taken > 0 and tonumber(taken[#taken]) > now do
        call('ZADD', key, table.remove(taken), table.remove(taken))
        empty = false
    end
    if empty then call('SREM', P .. 'lanes', names[1]) end
    return taken
end

local has_blocked = rare and call('EXISTS', P .. 'blocked') == 1
local has_statuses = rare and call('EXISTS', TOUCHED) == 1
local n, read_count = 0, 0
local ids, claimed, bodies, statuses, old_statuses, retried, head_of = {}, {}, {}, {}, {}, {}, {}

-- What the claim must know of some runs (a flat list of id and ready time): parallel lists. A run whose record cannot be
-- read has no head.
local function read(taken)
    local some = { ids = {}, ready = {}, bodies = {}, heads = {} }
    if #taken == 0 then return some end
    local some_ids, ready, some_heads = some.ids, some.ready, some.heads
    for i = 1, #taken / 2 do some_ids[i], ready[i] = taken[i * 2 - 1], taken[i * 2] end
    some.bodies = call('HMGET', RUNS, unpack(some_ids))
    for i, body in ipairs(some.bodies) do some_heads[i] = body and head_in(some_ids[i], body) end
    return some
end

-- Decides for each new head whether its runs must be held instead of starting here, and under which key.
local decided = 0
local function decide()
    local names, jobs = {}, {}
    for i = decided + 1, #heads do
        names[#names + 1], jobs[#jobs + 1] = heads[i].handler, heads[i].job
    end
    if #names == 0 then return end
    local known = has_handlers(names)
    local blocked = has_blocked and call('SMISMEMBER', P .. 'blocked', unpack(jobs))
    for i, name in ipairs(names) do
        local head = heads[decided + i]
        head.assigned = own[head.queue_key]
        head.hold = blocked and blocked[i] == 1 and 'job:' .. jobs[i]
            or known[i] == 0 and (head.assigned and UNPLACED or HANDLER_HOLD .. name)
        prepare(head)
        if head.traits % RANGED < SCHEDULED then head.submitted = {} end
    end
    decided = #heads
end

-- Claims runs that are in no index any more, or holds them.
local function claim_or_hold(some)
    local some_ids, ready, some_bodies = some.ids, some.ready, some.bodies
    if #some_ids == 0 then return end
    local texts = has_statuses and call('HMGET', STATUSES, unpack(some_ids)) or {}
    decide()
    for i, head in ipairs(some.heads) do
        local id, text = some_ids[i], texts[i]
        if head and head.hold then
            lazy().hold(id, lazy().read_body(some_bodies[i]), text and lazy().read_status(text) or nil, head.hold)
        elseif head then
            n = n + 1
            ids[n], bodies[n], head_of[n] = id, some_bodies[i], head
            claimed[n * 2 - 1], claimed[n * 2] = id, ready[i]
            if text then
                old_statuses[#old_statuses + 1] = n
                old_statuses[#old_statuses + 1] = text
                statuses[n] = text
                retried[#retried + 1] = id
            end
            local count = head.count + 1
            head.count = count
            if head.submitted then head.submitted[count] = id end
        end
    end
    read_count = read_count + #some_ids
end

if direct then
    -- Takes the first ready runs of the set, each the only one of its group. If one of them needs a decision (its group is
    -- not empty, it may be too late, or it is for other nodes), all are put back, and the result is nil.
    local function take_direct(name, most)
        local key = WAITING .. name
        local taken = call('ZPOPMIN', key, math.min(most, direct_count))
        direct_count = direct_count - #taken / 2
        local some, members, joined, groups, back = read(taken), {}, { LONG_NAME, '' }, {}, {}
        for _, head in ipairs(some.heads) do
            if head and head.group then groups[#groups + 1] = head.group end
        end
        for i, text in ipairs(#groups > 0 and call('HMGET', P .. 'groups', unpack(groups)) or {}) do
            members[groups[i]] = text
        end
        for i, id in ipairs(some.ids) do
            local head = some.heads[i]
            local group = head and head.group
            local undecided = group and (members[group] or head.traits >= TIMED and some.ready[i] + LATE < now)
            if head and (not may_take(head.queue_key) or undecided) then
                for k, each in ipairs(some.ids) do back[k * 2 - 1], back[k * 2] = some.ready[k], each end
                call('ZADD', key, unpack(back))
                return nil
            elseif group then
                members[group] = ' ' .. id .. ' '
                joined[#joined + 1] = group
                joined[#joined + 1] = members[group]
            end
        end
        if #groups > 0 then call('HSET', P .. 'groups', unpack(joined)) end
        return some
    end

    while direct and n < limit and read_count < MAX_READ do
        local most = math.min(limit - n, 1000)
        local some = take_direct(direct, most)
        if some then
            claim_or_hold(some)
            if #some.ids < most then break end
        else
            direct = false
            if read_count == 0 then
                promote_ready()
            else
                -- Promotion must not meet runs that are claimed but not yet stored as running: the next call continues.
                ready_sets, scheduled_sets = {}, {}
            end
        end
    end
end
if next(ready_sets) ~= nil or next(scheduled_sets) ~= nil then
    for priority = 9, 0, -1 do
        local before = n
        local some_ready, some_scheduled = ready_sets[priority], scheduled_sets[priority]
        while (some_ready or some_scheduled) and n < limit and read_count < MAX_READ do
            local most, taken = math.min(limit - n, 1000), nil
            if some_ready and some_scheduled then
                -- The share that scheduled runs of this priority have not had yet, as far as this round must give it.
                local owed = lazy().share_of(limit - before, request) - math.max(0, limit - n - most)
                for i = before + 1, n do
                    if byte(bodies[i], TRAITS_AT) % RANGED >= SCHEDULED then owed = owed - 1 end
                end
                taken = lazy().take_both(P .. 'ready:', some_ready, some_scheduled, now, most, owed)
            else
                taken = take(some_ready or some_scheduled, most)
            end
            claim_or_hold(read(taken))
            if #taken < most * 2 then break end
        end
    end
end
if #ready_now > 0 or read_count > n then due = earliest_ready(now) end -- a hold may have released another run
if read_count >= MAX_READ and n < limit then due = now end
local wakeups = ARGV[9] ~= '' and n < limit and due ~= now and register_sleeper(tonumber(ARGV[9])) or ''
if n == 0 then return { now, expires, 0, due, claimed, '', old_statuses, wakeups } end

local first = start_attempts(ids, claimed, head_of, statuses, node, request, now, expires, server)
if #retried > 0 then call_many('SREM', TOUCHED, retried) end
for _, head in ipairs(heads) do
    if head.count > 0 and head.submitted then call_many('SREM', P .. 'job:' .. head.job, head.submitted) end
end
return { now, expires, first, due, claimed, table.concat(bodies), old_statuses, wakeups }
