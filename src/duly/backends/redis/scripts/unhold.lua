--! use waiting notify
-- unhold: releases up to `limit` runs that are held under a key, the most urgent first: they become pending.
--
-- ARGV: the key, the limit. At most 500 a call. Returns how many; a repeat continues with what is left.
local key, limit = ARGV[1], math.min(tonumber(ARGV[2]), 500)
if key == UNPLACED then -- released without an assignment: any node may take them
    local held = held_under(key, limit)
    for i = 1, #held, 3 do set_node(held[i], read_body(call('HGET', RUNS, held[i])), nil) end
end
local count = unhold_all(key, limit)
if count > 0 then notify() end
return count
