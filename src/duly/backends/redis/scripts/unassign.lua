--! use waiting notify
-- unassign: takes the runs that wait for a node back, to be assigned again. Running ones stay.
--
-- ARGV: the node, the limit. At most 500 a call. Returns how many; a repeat continues with what is left.
local taken, most = 0, math.min(tonumber(ARGV[2]), 500)
for _, id in ipairs(call('ZRANGE', P .. 'assigned:' .. ARGV[1], 0, -1)) do
    if taken >= most then break end
    local run, status = load_run(id)
    if not (status and status.state == RUNNING) then
        remove_from_index(id, run, status)
        hold(id, run, status, UNPLACED)
        taken = taken + 1
    end
end
if taken > 0 then notify() end
return taken
