--! use waiting ring
-- unassign: takes runs that wait for a node back, to be placed anew. What runs there stays.
--
-- ARGV: the node, the limit. At most 500 a call. Returns how many; a repeat goes on with what is left.
local taken, most = 0, math.min(tonumber(ARGV[2]), 500)
for _, id in ipairs(call('ZRANGE', P .. 'assigned:' .. ARGV[1], 0, -1)) do
    if taken >= most then break end
    local run, life = load_run(id)
    if not (life and life.state == RUNNING) then
        take_out(id, run, life)
        hold(id, run, life, UNPLACED)
        taken = taken + 1
    end
end
if taken > 0 then ring() end
return taken
