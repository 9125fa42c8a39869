-- Several sorted sets of runs as if they were one: by ready time, then id.
local function is_before(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] < b[2]
end

-- The first runs of several sorted sets that are ready by `now`. Each entry is ready time, id, the
-- name of its set, and the ready time as text.
local function first_of(prefix, names, now, most)
    local all = {}
    for _, name in ipairs(names) do
        local some = redis.call('ZRANGEBYSCORE', prefix .. name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
        for i = 1, #some, 2 do all[#all + 1] = { tonumber(some[i + 1]), some[i], name, some[i + 1] } end
    end
    if #names > 1 then table.sort(all, is_before) end
    for i = #all, most + 1, -1 do all[i] = nil end
    return all
end

-- Removes such entries from the sets of queued runs with these names. Returns a flat list of id and ready time, in order.
local function take_all(prefix, names, entries)
    local taken, by_set = {}, {}
    table.sort(entries, is_before)
    for _, entry in ipairs(entries) do
        taken[#taken + 1] = entry[2]
        taken[#taken + 1] = entry[4]
        by_set[entry[3]] = by_set[entry[3]] or {}
        table.insert(by_set[entry[3]], entry[2])
    end
    for name, ids in pairs(by_set) do redis.call('ZREM', prefix .. name, unpack(ids)) end
    for _, name in ipairs(names) do
        if redis.call('EXISTS', prefix .. name) == 0 then redis.call('SREM', KEYS[1] .. 'lanes', name) end
    end
    return taken
end
