--! use waiting ring
-- assign: gives runs that are yet to be placed to nodes: each waits again, for that node alone.
--
-- ARGV: id and node (msgpack, flat). At most 500 runs a call. What is not held to be placed stays as it is; a repeat finds
-- nothing to give. Returns 1 or 0 for each.
local given = {}
local wishes = cmsgpack.unpack(ARGV[1])
for i = 1, #wishes, 2 do
    local id, node = wishes[i], wishes[i + 1]
    local text = call('HGET', LIVES, id)
    local life = text and read_life(text)
    if life and life.state == PENDING and life.hold == UNPLACED then
        local lane = relocate(id, call('HGET', RUNS, id), node)
        unhold(id, UNPLACED, byte(lane) - 48, life.ready)
        join_node(id, lane, life.ready)
        given[#given + 1] = 1
    else
        given[#given + 1] = 0
    end
end
if put_back > 0 then
    call('HSET', META, 'placed', 1)
    ring()
end
return given
