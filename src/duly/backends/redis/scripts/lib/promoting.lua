--! use waiting merging entering
-- Promotion: pending runs that are ready become queued, or what their group says.

--! const WHEN_FULL_SKIP 0
--! const WHEN_FULL_QUEUE 1

local replacements = 0

-- The newest takes the place of all others of its group; whether there is room for it by now.
local function replace_group(group, limit, now)
    replacements = replacements + 1
    local key = 'group:' .. group
    local line = held_under(key, 1e9)
    for i = 1, #line, 3 do
        local run, life = load_run(line[i])
        end_waiting(line[i], run, life, SKIPPED, 'replaced', now)
    end
    local members = roster_ids(call('HGET', GROUPS, group))
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
    return roster_size(call('HGET', GROUPS, group)) < limit
end

local function queue_run(id, lane, ready)
    call('ZADD', P .. 'ready:' .. lane, ready, id)
    call('SADD', P .. 'lanes', lane)
end

-- One ready run, out of the waiting ones, whose group has members or that may be too late: it is a member, or is missed, or
-- there is room, or `when_full` decides.
local function admit(id, body, ready, now)
    local run = read_body(body)
    local members = call('HGET', GROUPS, run.group)
    local member = roster_has(members, id)
    if not member and is_missed(body, ready, now) then
        local life = call('HGET', LIVES, id)
        finish(id, run, life and read_life(life) or nil, SKIPPED, 'misfire', now)
        return
    end
    if member or roster_size(members) < run.limit then
        join(GROUPS, run.group, id)
        queue_run(id, run.mark .. run.lane, ready)
        return
    end
    local life = call('HGET', LIVES, id)
    life = life and read_life(life) or nil
    if run.when_full == WHEN_FULL_SKIP then
        finish(id, run, life, SKIPPED, 'overlap', now)
    elseif run.when_full == WHEN_FULL_QUEUE or not replace_group(run.group, run.limit, now) then
        hold(id, run, life, 'group:' .. run.group)
    else
        join(GROUPS, run.group, id)
        queue_run(id, run.mark .. run.lane, ready)
    end
end

local function move(leaving, sets, joined)
    if #joined > 0 then call('HSET', GROUPS, unpack(joined)) end
    for level, ids in pairs(leaving) do call('ZREM', WAITING .. level, unpack(ids)) end
    for lane, entries in pairs(sets) do
        call('ZADD', P .. 'ready:' .. lane, unpack(entries))
        call('SADD', P .. 'lanes', lane)
    end
end

-- One slice: returns how many were looked at, and whether those were all. Runs in no group, and those whose group is
-- empty, are moved together. What one does whose group is not may end or put back another that is ready too: then the
-- slice ends with it.
local function promote_some(limit, now)
    local _, levels = look_ahead(now)
    local found = first_of(WAITING, levels, now, limit)
    if #found == 0 then return 0, false end
    local ids = {}
    for i = 1, #found do ids[i] = found[i][2] end
    local bodies = call('HMGET', RUNS, unpack(ids))
    local lanes, groups, names = {}, {}, {}
    for i = 1, #ids do
        if bodies[i] then
            local _, _, lane, group = read_head(ids[i], bodies[i])
            lanes[i], groups[i] = lane, group
            if group then names[#names + 1] = group end
        end
    end
    local rosters = {}
    for i, text in ipairs(#names > 0 and call('HMGET', GROUPS, unpack(names)) or {}) do rosters[names[i]] = text end
    local sets, leaving, joined, before = {}, {}, {}, put_back + replacements
    for i, id in ipairs(ids) do
        local group, level, ready = groups[i], found[i][3], found[i][4]
        if group and (rosters[group] or may_be_missed(bodies[i], ready, now)) then
            move(leaving, sets, joined)
            sets, leaving, joined = {}, {}, {}
            call('ZREM', WAITING .. level, id)
            admit(id, bodies[i], ready, now)
            if put_back + replacements > before then return i, false end
            rosters[group] = call('HGET', GROUPS, group)
        else
            if group then
                rosters[group] = roster_with(nil, id)
                joined[#joined + 1] = group
                joined[#joined + 1] = rosters[group]
            end
            if lanes[i] then enter(sets, mark_of(bodies[i]) .. lanes[i], ready, id) end
            leaving[level] = leaving[level] or {}
            table.insert(leaving[level], id)
        end
    end
    move(leaving, sets, joined)
    return #ids, true
end

-- Looks at up to `limit` runs that are ready, by ready time, then id. Returns how many there were.
local function promote(limit, now)
    local looked_at, size = 0, 1000
    while looked_at < limit do
        local some, all = promote_some(math.min(limit - looked_at, size), now)
        if some == 0 then break end
        looked_at = looked_at + some
        -- What was read of a slice that ended early was read for nothing.
        size = all and math.min(size * 2, 1000) or 16
    end
    return looked_at
end
