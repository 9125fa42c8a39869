--! use placing levels
-- Waiting runs: where they wait, how they are held and put back, how they end, and who is next in a group's line.

--! const HANDLER_HOLD 'handler:'
local HOLDS = P .. 'holds'

local function held_key(priority, key)
    return P .. 'held:' .. priority .. ':' .. key
end

local function count_hold(key, by)
    if call('HINCRBY', HOLDS, key, by) <= 0 then
        call('HDEL', HOLDS, key)
        if sub(key, 1, 8) == HANDLER_HOLD then call('SREM', P .. 'unstaffed', sub(key, 8 + 1)) end
    elseif by > 0 and sub(key, 1, 8) == HANDLER_HOLD then
        call('SADD', P .. 'unstaffed', sub(key, 8 + 1))
    end
end

-- Whether a new pending run changes when to look next.
local function is_first(ready)
    local first = look_ahead(0)
    return first == '' or ready < tonumber(first)
end

-- Lets a run with this mark wait for its ready time.
local function wait(id, priority, mark, ready)
    local level = mark .. priority
    call('ZADD', WAITING .. level, ready, id)
    call('SADD', LEVELS, level)
end

-- How many runs have been put back in this call: whoever walks through the waiting ones must look again.
local put_back = 0

local function times_put_back()
    return put_back
end

-- Lets a held run wait again. A life that says nothing any more goes.
local function unhold(id, key, priority, ready)
    call('ZREM', held_key(priority, key), id)
    count_hold(key, -1)
    local life = read_life(call('HGET', LIVES, id))
    if life.flags == FRESH then
        call('HDEL', LIVES, id)
        call('SREM', TOUCHED, id)
    else
        life.hold = nil
        save_life(id, life)
    end
    local body = call('HGET', RUNS, id)
    wait(id, priority, mark_of(body), ready)
    if call('HEXISTS', META, 'placed') == 1 then join_node(id, read_body(body).lane, ready) end
    put_back = put_back + 1
end

-- The runs held under a key, the most urgent first: a flat list of id, ready time and priority.
local function held_under(key, limit)
    local found = {}
    if call('HEXISTS', HOLDS, key) == 0 then return found end
    for priority = 9, 0, -1 do
        local some = call('ZRANGE', held_key(priority, key), 0, limit - #found / 3 - 1, 'WITHSCORES')
        for i = 1, #some, 2 do
            found[#found + 1] = some[i]
            found[#found + 1] = tonumber(some[i + 1])
            found[#found + 1] = priority
        end
        if #found / 3 >= limit then break end
    end
    return found
end

-- A member of a group has gone: the first in line waits again.
local function admit_next(group)
    local key = 'group:' .. group
    local next_one = held_under(key, 1)
    if next_one[1] then unhold(next_one[1], key, next_one[3], next_one[2]) end
end

-- A run that was no member leaves: a place it may have been offered goes to the next in line, which would otherwise wait
-- for ever, since no member is left to end.
local function pass_on(group)
    local key = 'group:' .. group
    local next_one = held_under(key, 1)
    if next_one[1] then
        local limit = read_body(call('HGET', RUNS, next_one[1])).limit
        if roster_size(call('HGET', GROUPS, group)) < limit then unhold(next_one[1], key, next_one[3], next_one[2]) end
    end
end

-- Frees what an unfinished run occupied: its dedupe key, and its place in the group.
local function release(id, run)
    if run.dedupe then
        local field = run.handler .. '\0' .. run.dedupe
        if call('HGET', P .. 'dedupe', field) == id then call('HDEL', P .. 'dedupe', field) end
    end
    if run.group then
        if leave(GROUPS, run.group, id) then
            admit_next(run.group)
        else
            pass_on(run.group)
        end
    end
end

-- Takes a run out of the sets of this level or lane; whether it was in one.
local function take_from(id, level, lane)
    if call('ZREM', WAITING .. level, id) == 1 then return true end
    if call('ZREM', P .. 'ready:' .. lane, id) == 0 then return false end
    if call('EXISTS', P .. 'ready:' .. lane) == 0 then call('SREM', P .. 'lanes', lane) end
    return true
end

-- Takes a waiting run out of the index that it is in.
local function take_out(id, run, life)
    if life and life.hold then
        call('ZREM', held_key(byte(run.lane) - 48, life.hold), id)
        count_hold(life.hold, -1)
        return
    end
    local level = sub(run.lane, 1, 1)
    local _ = take_from(id, run.mark .. level, run.mark .. run.lane) or take_from(id, level, run.lane)
end

-- Holds a run that is in no index at the moment. One that is yet to be placed is nobody's.
local function hold(id, run, life, key)
    leave_node(id, run.lane)
    local _, node = queue_of(run.lane)
    if node and key == UNPLACED then run.lane = relocate(id, call('HGET', RUNS, id), '') end
    if not life then
        life = new_life(run.ready)
        life.flags = FRESH
    end
    life.hold = key
    save_life(id, life)
    call('SADD', TOUCHED, id)
    call('ZADD', held_key(byte(run.lane) - 48, key), life.ready, id)
    count_hold(key, 1)
    if run.group and key == 'group:' .. run.group then
        excuse(id, call('HGET', RUNS, id)) -- who waits for others of its group does not start late for any other reason
    elseif run.group and not roster_has(call('HGET', GROUPS, run.group), id) then
        pass_on(run.group)
    end
end

-- Holds runs that were just added: a flat list of priority, ready time and id.
local function hold_new(key, entries)
    local sets, ids = {}, {}
    for i = 1, #entries, 3 do
        local set = sets[entries[i]] or {}
        sets[entries[i]] = set
        set[#set + 1], set[#set + 2] = entries[i + 1], entries[i + 2]
        ids[#ids + 1] = entries[i + 2]
    end
    for priority, set in pairs(sets) do call_many('ZADD', held_key(priority, key), set) end
    call_many('SADD', TOUCHED, ids)
    count_hold(key, #ids)
end

-- Tells those who wait for the end of one of these runs.
local function tell_ended(ids)
    if #ids == 0 or call('EXISTS', P .. 'awaited') == 0 then return end
    local told = {}
    for _, id in ipairs(ids) do
        if call('SREM', P .. 'awaited', id) == 1 then told[#told + 1] = id end
    end
    if #told > 0 then call('PUBLISH', P .. 'ended', table.concat(told, ' ')) end
end

local function count_ended(state, n)
    call('HINCRBY', P .. 'totals', state, n)
end

-- Gives a waiting run that is in no index any more its final state.
local function finish(id, run, life, state, reason, now)
    if life then
        call('SREM', TOUCHED, id)
    else
        life = new_life(run.ready)
    end
    life.state, life.reason, life.hold, life.finished = state, reason, nil, now
    life.flags = life.flags % FRESH
    save_life(id, life)
    call('ZADD', P .. 'ended:' .. state, now, id)
    count_ended(state, 1)
    leave_node(id, run.lane)
    call('HINCRBY', P .. 'depths', 'w' .. (queue_of(run.lane)), -1)
    delist(id, run)
    release(id, run)
    tell_ended({ id })
end

-- Gives a waiting run its final state.
local function end_waiting(id, run, life, state, reason, now)
    take_out(id, run, life)
    finish(id, run, life, state, reason, now)
end

local function load_run(id)
    local body = call('HGET', RUNS, id)
    if not body then return nil end
    local life = call('HGET', LIVES, id)
    return read_body(body), life and read_life(life) or nil
end
