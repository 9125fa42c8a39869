--! use forgetting jobs
-- What a change of a job does to its waiting runs.

-- Recurring, pending, never attempted, of this identity, and due after now.
local function not_yet_due(id, run, life, uid, now)
    if bit.band(run.traits, SCHEDULED) == 0 or run.uid ~= uid or run.due <= now then return false end
    if life and (life.failures > 0 or life.losses > 0) then return false end
    local level = sub(run.lane, 1, 1)
    return (life and life.hold ~= nil) or call('ZSCORE', WAITING .. run.mark .. level, id) ~= false
        or call('ZSCORE', WAITING .. level, id) ~= false
end

-- Deletes what is not yet due; with `all` cancels what else waits. Returns how many were deleted and the earliest due.
local function clear_waiting(name, uid, all, now)
    local deleted, earliest, others = 0, nil, {}
    for _, id in ipairs(roster_ids(call('HGET', PLANS, name))) do
        local run, life = load_run(id)
        if not run or (life and life.state ~= PENDING) then
            leave(PLANS, name, id) -- it was claimed meanwhile
        elseif not_yet_due(id, run, life, uid, now) then
            delete_waiting(id, run, life)
            deleted = deleted + 1
            if not earliest or run.due < earliest then earliest = run.due end
        else
            others[#others + 1] = id
        end
    end
    if all then
        local submitted = call('SMEMBERS', P .. 'job:' .. name)
        table.sort(submitted)
        for _, id in ipairs(submitted) do others[#others + 1] = id end
        for _, id in ipairs(others) do
            local run, life = load_run(id)
            end_waiting(id, run, life, CANCELLED, 'job removed', now)
        end
    end
    return deleted, earliest
end
