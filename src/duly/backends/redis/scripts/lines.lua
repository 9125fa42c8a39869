--! use record
-- lines: the sorted sets in which runs wait without a hold. Changes nothing. Returns their keys without the prefix.
local lines = { 'waiting' }
for _, lane in ipairs(call('SMEMBERS', P .. 'lanes')) do lines[#lines + 1] = 'ready:' .. lane end
return lines
