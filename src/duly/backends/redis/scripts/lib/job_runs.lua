--! use delete_runs jobs
-- What a change of a job does to its waiting runs.

-- Whether a run is scheduled, pending, never attempted, of this job's uid, and due after now.
local function is_future(id, run, status, uid, now)
    if bit.band(run.traits, SCHEDULED) == 0 or run.uid ~= uid or run.due <= now then return false end
    if status and (status.failures > 0 or status.losses > 0) then return false end
    local priority = sub(run.queue_key, 1, 1)
    return (status and status.hold ~= nil) or call('ZSCORE', WAITING .. marked(priority, run.traits), id) ~= false
        or call('ZSCORE', WAITING .. priority, id) ~= false
end

-- Deletes the future runs; with `all`, cancels the other waiting runs. Returns how many were deleted, and their earliest
-- due time.
local function clear_waiting(name, uid, all, now)
    local deleted, earliest, others = 0, nil, {}
    for _, id in ipairs(list_ids(call('HGET', SCHEDULE_LISTS, name))) do
        local run, status = load_run(id)
        if not run or (status and status.state ~= PENDING) then
            remove_from_list(SCHEDULE_LISTS, name, id) -- it was claimed: claims leave the list alone
        elseif is_future(id, run, status, uid, now) then
            delete_waiting(id, run, status)
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
        for _, id in ipairs(others) do end_by_id(id, CANCELLED, 'job removed', now) end
    end
    return deleted, earliest
end
