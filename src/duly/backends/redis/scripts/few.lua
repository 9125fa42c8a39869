--! use record
-- few: the ids of all runs in some states, if there are not many. Changes nothing.
--
-- ARGV: the most to return, then states: a number for a final one, 2 for running, 0 for waiting.
-- Returns the ids, or nil if there are more.
local most, ids = tonumber(ARGV[1]), {}

local function add(key)
    if #ids + call('ZCARD', key) > most then return false end
    for _, id in ipairs(call('ZRANGE', key, 0, -1)) do ids[#ids + 1] = id end
    return true
end

local function add_waiting()
    for _, level in ipairs(call('SMEMBERS', P .. 'levels')) do
        if not add(WAITING .. level) then return false end
    end
    for _, lane in ipairs(call('SMEMBERS', P .. 'lanes')) do
        if not add(P .. 'ready:' .. lane) then return false end
    end
    for _, key in ipairs(call('HKEYS', P .. 'holds')) do
        for priority = 0, 9 do
            if not add(P .. 'held:' .. priority .. ':' .. key) then return false end
        end
    end
    return true
end

for i = 2, #ARGV do
    local state = tonumber(ARGV[i])
    local all
    if state == PENDING then
        all = add_waiting()
    elseif state == RUNNING then
        all = add(RUNNING_SET)
    else
        all = add(P .. 'ended:' .. ARGV[i])
    end
    if not all then return false end
end
return ids
