--! use record
-- unplaced: the runs of every priority that are to be placed first. Changes nothing.
--
-- ARGV: how many of each. Returns id and ready time (flat), in no order among priorities.
local found = {}
if call('HEXISTS', P .. 'holds', UNPLACED) == 0 then return found end
for priority = 0, 9 do
    local some = call('ZRANGE', P .. 'held:' .. priority .. ':' .. UNPLACED, 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
    for i = 1, #some do found[#found + 1] = some[i] end
end
return found
