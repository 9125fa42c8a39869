--! use waiting_set_names
-- waiting_sets: the sorted sets in which runs wait without a hold, or for an assignment. Changes nothing. Returns the keys
-- of those that exist, without the prefix.
local found = {}
for _, name in ipairs(waiting_set_names({ UNPLACED })) do
    if call('EXISTS', P .. name) == 1 then found[#found + 1] = name end
end
return found
