--! use waiting merge pair_lists
-- Promotion: a pending run that is ready becomes queued, or what its group decides.

--! const WHEN_FULL_SKIP 0
--! const WHEN_FULL_QUEUE 1

local replacements = 0

-- The newest run takes the place of all others of its group; whether there is room for it now.
local function replace_group(group, limit, now)
    replacements = replacements + 1
    local held = held_under('group:' .. group, 1e9)
    for i = 1, #held, 3 do end_by_id(held[i], SKIPPED, 'replaced', now) end
    local members = list_ids(call('HGET', GROUPS, group))
    table.sort(members)
    for _, member in ipairs(members) do
        local run, status = load_run(member)
        if status and status.state == RUNNING then
            request_cancel(member, status, 'replaced')
        else
            end_waiting(member, run, status, CANCELLED, 'replaced', now)
        end
    end
    return list_size(call('HGET', GROUPS, group)) < limit
end

-- Decides about a ready run, removed from its set, whose group has members or which may be too late: it is a member, or
-- too late, or there is room, or `when_full` decides.
local function admit(id, body, ready, now)
    local run = read_body(body)
    local members = call('HGET', GROUPS, run.group)
    local member = list_has(members, id)
    local missed = not member and is_missed(body, ready, now)
    local admitted = member or not missed and list_size(members) < run.limit
    if not admitted then
        local text = call('HGET', STATUSES, id)
        local status = text and read_status(text) or nil
        if missed then
            finish(id, run, status, SKIPPED, 'misfire', now)
        elseif run.when_full == WHEN_FULL_SKIP then
            finish(id, run, status, SKIPPED, 'overlap', now)
        elseif run.when_full == WHEN_FULL_QUEUE or not replace_group(run.group, run.limit, now) then
            hold(id, run, status, 'group:' .. run.group)
        else
            admitted = true
        end
    end
    if admitted then
        add_to_list(GROUPS, run.group, id)
        add_queued(id, run, ready)
    end
end

local function move(leaving, sets, joined)
    if #joined > 0 then call('HSET', GROUPS, unpack(joined)) end
    for name, ids in pairs(leaving) do call('ZREM', WAITING .. name, unpack(ids)) end
    for queue_key, members in pairs(sets) do
        call('ZADD', P .. 'ready:' .. queue_key, unpack(members))
        call('SADD', P .. 'lanes', queue_key)
    end
end

-- Promotes one slice. Returns how many runs were treated, and whether those were all of the slice. Runs without a group,
-- or whose group is empty, are moved together. A decision about any other run may end or release a run that is ready,
-- too: then the slice ends with it.
local function promote_slice(limit, now)
    local _, names = earliest_ready(now)
    local found = first_of(WAITING, names, now, limit)
    if #found == 0 then return 0, false end
    local ids = {}
    for i = 1, #found do ids[i] = found[i][2] end
    local bodies = call('HMGET', RUNS, unpack(ids))
    local queue_keys, groups, group_names = {}, {}, {}
    for i = 1, #ids do
        if bodies[i] then
            local _, _, queue_key, group = read_head(ids[i], bodies[i])
            queue_keys[i], groups[i] = queue_key, group
            if group then group_names[#group_names + 1] = group end
        end
    end
    local members = {}
    for i, text in ipairs(#group_names > 0 and call('HMGET', GROUPS, unpack(group_names)) or {}) do
        members[group_names[i]] = text
    end
    local sets, leaving, joined, before = {}, {}, {}, unheld + replacements
    for i, id in ipairs(ids) do
        local group, name, ready = groups[i], found[i][3], found[i][4]
        if group and (members[group] or may_be_missed(bodies[i], ready, now)) then
            move(leaving, sets, joined)
            sets, leaving, joined = {}, {}, {}
            call('ZREM', WAITING .. name, id)
            admit(id, bodies[i], ready, now)
            if unheld + replacements > before then return i, false end
            members[group] = call('HGET', GROUPS, group)
        else
            if group then
                members[group] = list_with(nil, id)
                joined[#joined + 1] = group
                joined[#joined + 1] = members[group]
            end
            if queue_keys[i] then append_pair(sets, marked(queue_keys[i], byte(bodies[i], TRAITS_AT)), ready, id) end
            leaving[name] = leaving[name] or {}
            table.insert(leaving[name], id)
        end
    end
    move(leaving, sets, joined)
    return #ids, true
end

-- Promotes up to `limit` ready runs, by ready time, then id. Returns how many were treated.
local function promote(limit, now)
    local count, size = 0, 1000
    while count < limit do
        local some, all = promote_slice(math.min(limit - count, size), now)
        if some == 0 then break end
        count = count + some
        -- The rest of a slice that ended early was read in vain: the next one is small.
        size = all and math.min(size * 2, 1000) or 16
    end
    return count
end
