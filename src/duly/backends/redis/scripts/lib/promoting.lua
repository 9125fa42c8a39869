--! use waiting
-- Promotion: pending runs that are ready become queued, or what their group says.

--! const WHEN_FULL_SKIP 0
--! const WHEN_FULL_QUEUE 1

local function enter(sets, lane, ready, id)
    local set = sets[lane]
    if not set then
        set = {}
        sets[lane] = set
    end
    set[#set + 1] = ready
    set[#set + 1] = id
end

-- The newest takes the place of all others of its group; whether there is room for it by now.
local function replace_group(group, limit, now)
    local key = 'group:' .. group
    local line = held_under(key, 1e9)
    for i = 1, #line, 3 do
        local run, life = load_run(line[i])
        end_waiting(line[i], run, life, SKIPPED, 'replaced', now)
    end
    local members = call('SMEMBERS', P .. 'members:' .. group)
    table.sort(members)
    for _, member in ipairs(members) do
        local run, life = load_run(member)
        if life and life.state == RUNNING then
            if bit.band(life.flags, CANCELLING) == 0 then life.flags = life.flags + CANCELLING end
            life.reason = 'replaced'
            save_life(member, life)
        else
            end_waiting(member, run, life, CANCELLED, 'replaced', now)
        end
    end
    return call('SCARD', P .. 'members:' .. group) < limit
end

local function queue_run(id, lane, ready)
    call('ZADD', P .. 'ready:' .. lane, ready, id)
    call('SADD', P .. 'lanes', lane)
end

-- One ready run with a group enters it, or its `when_full` decides.
local function admit(id, body, ready, now)
    local run = read_body(body)
    local members = P .. 'members:' .. run.group
    if call('SISMEMBER', members, id) == 1 then
        queue_run(id, run.lane, ready)
        return
    end
    if call('SCARD', members) < run.limit then
        call('SADD', members, id)
        queue_run(id, run.lane, ready)
        return
    end
    local life = call('HGET', LIVES, id)
    life = life and read_life(life) or nil
    if run.when_full == WHEN_FULL_SKIP then
        finish(id, run, life, SKIPPED, 'overlap', now)
    elseif run.when_full == WHEN_FULL_QUEUE or not replace_group(run.group, run.limit, now) then
        hold(id, run, life, 'group:' .. run.group)
    else
        call('SADD', members, id)
        queue_run(id, run.lane, ready)
    end
end

-- One slice. Runs in no group leave the waiting ones together; those of a group one by one, since what one of them does
-- to its group may end or put back another that is ready too.
local function promote_some(limit, now)
    local found = call('ZRANGEBYSCORE', WAITING, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
    if #found == 0 then return 0 end
    local ids = {}
    for i = 1, #found / 2 do ids[i] = found[i * 2 - 1] end
    local bodies = call('HMGET', RUNS, unpack(ids))
    local sets, leaving, looked_at, before = {}, {}, 0, put_back
    for i, id in ipairs(ids) do
        local body, ready = bodies[i], found[i * 2]
        looked_at = i
        if not body then
            leaving[#leaving + 1] = id
        elseif bit.band(byte(body, TRAITS_AT), GROUPED) == 0 then
            local _, _, _, lane = decode_some(body, 3, HANDLER_AT)
            leaving[#leaving + 1] = id
            enter(sets, lane, ready, id)
        elseif call('ZREM', WAITING, id) == 1 then
            admit(id, body, ready, now)
            if put_back > before then break end -- it may come before the ones that are left
        end
    end
    if #leaving > 0 then call('ZREM', WAITING, unpack(leaving)) end
    for lane, entries in pairs(sets) do
        call('ZADD', P .. 'ready:' .. lane, unpack(entries))
        call('SADD', P .. 'lanes', lane)
    end
    return looked_at
end

-- Looks at up to `limit` runs that are ready, by ready time, then id. Returns how many there were.
local function promote(limit, now)
    local looked_at = 0
    while looked_at < limit do
        local some = promote_some(math.min(limit - looked_at, 1000), now)
        if some == 0 then break end
        looked_at = looked_at + some
    end
    return looked_at
end
