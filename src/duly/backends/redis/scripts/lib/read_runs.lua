--! use run_records
-- Runs as they are stored. Returns for each id that exists: its number, body, status ('' if it has none), whether it is a
-- member of its group, and its expiry if it is running, else ''; flat, five for each.
local function read_runs(ids)
    local found = {}
    if #ids == 0 then return found end
    local bodies, statuses = call('HMGET', RUNS, unpack(ids)), call('HMGET', STATUSES, unpack(ids))
    for i, id in ipairs(ids) do
        local body, status = bodies[i], statuses[i]
        if body then
            local member, expires = 0, ''
            if bit.band(byte(body, TRAITS_AT), GROUPED) ~= 0 then
                member = list_has(call('HGET', GROUPS, read_body(body).group), id) and 1 or 0
            end
            if status and byte(status, 2) == RUNNING then expires = call('ZSCORE', RUNNING_SET, id) end
            local n = #found
            found[n + 1], found[n + 2], found[n + 3], found[n + 4], found[n + 5] = i, body, status or '', member, expires
        end
    end
    return found
end
