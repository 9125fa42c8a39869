--! use waiting_set_names
-- waiting_sets: the sorted sets in which runs wait without a hold, or for an assignment. Changes nothing.
--
-- ARGV: 'all' if those of all holds are asked for as well. Returns the keys of those that exist, without the prefix.
local found = {}
for _, name in ipairs(waiting_set_names(ARGV[1] == 'all' and call('HKEYS', P .. 'holds') or { UNPLACED })) do
    if call('EXISTS', P .. name) == 1 then found[#found + 1] = name end
end
return found
