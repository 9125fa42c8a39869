--! use layout
-- The keys, without the prefix, of the sorted sets in which runs wait: pending, queued, or under one of these holds.
local function waiting_set_names(holds)
    local names = {}
    for _, name in ipairs(call('SMEMBERS', P .. 'levels')) do names[#names + 1] = 'waiting:' .. name end
    for _, name in ipairs(call('SMEMBERS', P .. 'lanes')) do names[#names + 1] = 'ready:' .. name end
    for _, hold in ipairs(holds) do
        for priority = 0, 9 do names[#names + 1] = 'held:' .. priority .. ':' .. hold end
    end
    return names
end
