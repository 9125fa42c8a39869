--! use record
-- lines: the sorted sets in which runs wait without a hold, or to be placed. Changes nothing. Returns their keys without
-- the prefix.
local lines = {}
for _, level in ipairs(call('SMEMBERS', P .. 'levels')) do lines[#lines + 1] = 'waiting:' .. level end
for _, lane in ipairs(call('SMEMBERS', P .. 'lanes')) do lines[#lines + 1] = 'ready:' .. lane end
if call('HEXISTS', P .. 'holds', UNPLACED) == 1 then
    for priority = 0, 9 do
        local line = 'held:' .. priority .. ':' .. UNPLACED
        if call('EXISTS', P .. line) == 1 then lines[#lines + 1] = line end
    end
end
return lines
