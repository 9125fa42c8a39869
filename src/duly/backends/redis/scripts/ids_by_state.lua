--! use waiting_set_names
-- ids_by_state: the ids of all runs in some states, if there are not many. Changes nothing.
--
-- ARGV: the most to return, then states: a number for a final one, 2 for running, 0 for waiting.
-- Returns the ids, or nil if there are more.
local most, ids = tonumber(ARGV[1]), {}
for i = 2, #ARGV do
    local state, names = tonumber(ARGV[i]), { 'ended:' .. ARGV[i] }
    if state == PENDING then
        names = waiting_set_names(call('HKEYS', P .. 'holds'))
    elseif state == RUNNING then
        names = { 'running' }
    end
    for _, name in ipairs(names) do
        if #ids + call('ZCARD', P .. name) > most then return false end
        for _, id in ipairs(call('ZRANGE', P .. name, 0, -1)) do ids[#ids + 1] = id end
    end
end
return ids
