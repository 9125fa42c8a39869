--! use assignments waiting_sets recent_runs
-- Waiting runs: the sets they wait in, holds, the order of a group, and how a waiting run ends.

--! const HANDLER_HOLD 'handler:'
local HOLDS = P .. 'holds'

local function held_key(priority, key)
    return P .. 'held:' .. priority .. ':' .. key
end

-- Counts held runs by hold, and keeps the list of handlers that held runs wait for.
local function count_held(key, by)
    local handler = sub(key, 1, 8) == HANDLER_HOLD and sub(key, 8 + 1)
    if call('HINCRBY', HOLDS, key, by) <= 0 then
        call('HDEL', HOLDS, key)
        if handler then call('SREM', P .. 'unstaffed', handler) end
    elseif by > 0 and handler then
        call('SADD', P .. 'unstaffed', handler)
    end
end

-- Whether a new pending run is ready before all others, so that sleeping nodes must learn of it.
local function is_earliest(ready)
    local first = earliest_ready(0)
    return first == '' or ready < tonumber(first)
end

-- Makes a run pending, of this priority.
local function add_pending(id, priority, body, ready)
    local name = marked(priority, body)
    call('ZADD', WAITING .. name, ready, id)
    call('SADD', WAITING_SETS, name)
end

-- Makes a run queued.
local function add_queued(id, run, ready)
    local name = marked(run.queue_key, run.body)
    call('ZADD', P .. 'ready:' .. name, ready, id)
    call('SADD', P .. 'lanes', name)
end

-- How many runs this call of the script has released from holds: a loop over waiting runs must then read them again.
local unheld = 0

local function unheld_count()
    return unheld
end

-- Releases a held run: it becomes pending. A status that says nothing else is deleted. Of the body only two bytes are read,
-- unless runs are assigned to nodes, so that a damaged body does not keep the others held.
local function unhold(id, key, priority, ready)
    call('ZREM', held_key(priority, key), id)
    count_held(key, -1)
    local status = read_status(call('HGET', STATUSES, id))
    if status.flags == ONLY_HELD then
        call('HDEL', STATUSES, id)
        call('SREM', TOUCHED, id)
    else
        status.hold = nil
        store_status(id, status)
    end
    local body = call('HGET', RUNS, id)
    add_pending(id, priority, body, ready)
    if call('HEXISTS', META, 'placed') == 1 then add_to_node(id, read_body(body).queue_key, ready) end
    unheld = unheld + 1
end

-- The runs under a hold, the most urgent first: a flat list of id, ready time and priority.
local function held_under(key, limit)
    local found = {}
    if call('HEXISTS', HOLDS, key) == 0 then return found end
    for priority = 9, 0, -1 do
        local some = call('ZRANGE', held_key(priority, key), 0, limit - #found / 3 - 1, 'WITHSCORES')
        for i = 1, #some, 2 do
            local n = #found
            found[n + 1], found[n + 2], found[n + 3] = some[i], tonumber(some[i + 1]), priority
        end
        if #found / 3 >= limit then break end
    end
    return found
end

-- Releases all runs under a hold, up to a limit; how many.
local function unhold_all(key, limit)
    local found = held_under(key, limit)
    for i = 1, #found, 3 do unhold(found[i], key, found[i + 2], found[i + 1]) end
    return #found / 3
end

-- Releases the first run that is held for a group: after a member has left, or, if there is room, after a run that was
-- offered a place gives it up. In the second case no member may be left to end, and the run would wait for ever.
local function offer_place(group, only_if_room)
    local key = 'group:' .. group
    local id, ready, priority = unpack(held_under(key, 1))
    if not id then return end
    if only_if_room and list_size(call('HGET', GROUPS, group)) >= read_body(call('HGET', RUNS, id)).limit then
        return
    end
    unhold(id, key, priority, ready)
end

-- Frees what an unfinished run reserves: its dedupe key, and its place in the group.
local function free_reservations(id, run)
    if run.dedupe then
        local field = run.handler .. '\0' .. run.dedupe
        if call('HGET', P .. 'dedupe', field) == id then call('HDEL', P .. 'dedupe', field) end
    end
    if run.group then
        local was_member = remove_from_list(GROUPS, run.group, id)
        offer_place(run.group, not was_member)
    end
end

-- Removes a run from the set of pending or of queued runs with these names; whether it was in one.
local function remove_from_sets(id, priority, queue_key)
    if call('ZREM', WAITING .. priority, id) == 1 then return true end
    if call('ZREM', P .. 'ready:' .. queue_key, id) == 0 then return false end
    if call('EXISTS', P .. 'ready:' .. queue_key) == 0 then call('SREM', P .. 'lanes', queue_key) end
    return true
end

-- Removes a waiting run from the index that it is in.
local function remove_from_index(id, run, status)
    local priority = sub(run.queue_key, 1, 1)
    if status and status.hold then
        call('ZREM', held_key(priority, status.hold), id)
        count_held(status.hold, -1)
        return
    end
    local _ = remove_from_sets(id, marked(priority, run.body), marked(run.queue_key, run.body))
        or remove_from_sets(id, priority, run.queue_key)
end

-- Holds a run that is in no index. One that waits for an assignment has no node.
local function hold(id, run, status, key)
    remove_from_node(id, run.queue_key)
    local _, node = split_queue_key(run.queue_key)
    if node and key == UNPLACED then set_node(id, run, '') end
    if not status then
        status = new_status(run.ready)
        status.flags = ONLY_HELD
    end
    status.hold = key
    store_status(id, status)
    call('SADD', TOUCHED, id)
    call('ZADD', held_key(sub(run.queue_key, 1, 1), key), status.ready, id)
    count_held(key, 1)
    if run.group and key == 'group:' .. run.group then
        lift_start_limit(id, run) -- a run is late here only because it waits for its group
    elseif run.group and not list_has(call('HGET', GROUPS, run.group), id) then
        offer_place(run.group, true)
    end
end

-- Holds runs that were just added: by priority, the arguments of one ZADD.
local function store_held(key, sets)
    for priority, members in pairs(sets) do
        call_many('ZADD', held_key(priority, key), members)
        local ids = {}
        for i = 2, #members, 2 do ids[#ids + 1] = members[i] end
        call_many('SADD', TOUCHED, ids)
        count_held(key, #ids)
    end
end

-- Publishes the end of those of these runs that a session waits for.
local function publish_ended(ids)
    if #ids == 0 or call('EXISTS', P .. 'awaited') == 0 then return end
    local awaited = {}
    for _, id in ipairs(ids) do
        if call('SREM', P .. 'awaited', id) == 1 then awaited[#awaited + 1] = id end
    end
    if #awaited > 0 then call('PUBLISH', P .. 'ended', table.concat(awaited, ' ')) end
end

-- Gives a waiting run that is in no index its final state.
local function finish(id, run, status, state, reason, now)
    if status then
        call('SREM', TOUCHED, id)
    else
        status = new_status(run.ready)
    end
    status.state, status.reason, status.hold, status.finished = state, reason, nil, now
    status.flags = status.flags % ONLY_HELD
    store_status(id, status)
    call('ZADD', P .. 'ended:' .. state, now, id)
    add_recent(run.job, { id })
    call('HINCRBY', P .. 'totals', state, 1)
    remove_from_node(id, run.queue_key)
    call('HINCRBY', P .. 'depths', 'w' .. (split_queue_key(run.queue_key)), -1)
    remove_from_job(id, run)
    free_reservations(id, run)
    publish_ended({ id })
end

-- Gives a waiting run its final state.
local function end_waiting(id, run, status, state, reason, now)
    remove_from_index(id, run, status)
    finish(id, run, status, state, reason, now)
end

local function end_by_id(id, state, reason, now)
    local run, status = load_run(id)
    end_waiting(id, run, status, state, reason, now)
end

-- Asks the worker of a running run to cancel it.
local function request_cancel(id, status, reason)
    if status.flags % RESERVING ~= CANCELLING then status.flags = status.flags + CANCELLING end
    status.reason = reason
    store_status(id, status)
end
