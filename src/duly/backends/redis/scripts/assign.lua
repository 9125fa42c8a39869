--! use waiting notify
-- assign: assigns runs that are held for an assignment to nodes; each becomes pending, for its node alone.
--
-- ARGV: id and node of each (msgpack, flat). At most 500 runs a call. A run that is not held for an assignment stays as it
-- is; a repeat finds none. Returns 1 (assigned) or 0 for each.
local given = {}
local wanted = cmsgpack.unpack(ARGV[1])
for i = 1, #wanted, 2 do
    local id, node = wanted[i], wanted[i + 1]
    local run, status = load_run(id)
    if status and status.state == PENDING and status.hold == UNPLACED then
        call('HSET', META, 'placed', 1)
        set_node(id, run, node)
        unhold(id, UNPLACED, sub(run.queue_key, 1, 1), status.ready)
        given[#given + 1] = 1
    else
        given[#given + 1] = 0
    end
end
if unheld > 0 then notify() end
return given
