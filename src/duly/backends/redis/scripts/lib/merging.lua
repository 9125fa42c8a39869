-- The first of several sorted sets of runs as if they were one: by ready time, then id. Each is listed as ready time, id,
-- the name of its set, and the ready time as text.
local function first_of(prefix, names, now, most)
    local all = {}
    for _, name in ipairs(names) do
        local some = redis.call('ZRANGEBYSCORE', prefix .. name, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
        for i = 1, #some, 2 do all[#all + 1] = { tonumber(some[i + 1]), some[i], name, some[i + 1] } end
    end
    if #names > 1 then
        table.sort(all, function(a, b)
            if a[1] ~= b[1] then return a[1] < b[1] end
            return a[2] < b[2]
        end)
    end
    for i = #all, most + 1, -1 do all[i] = nil end
    return all
end
