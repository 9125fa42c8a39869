--! use lives
-- Placement: whom a run is for is told by the lane in its body. `assigned:<node>` has what a node was given and is not
-- held, running or not, by ready time; `assignees` lists the nodes that have any.

-- Makes a run one for this node, '' for one that is yet to be placed, nil for anybody. Returns its lane then.
local function relocate(id, body, node)
    local from = decode_some(body, 2, HANDLER_AT)
    local to, lane = decode_some(body, 1, from)
    local moved = sub(lane, 1, 1) .. queue_of(lane) .. (node and '@' .. node or '')
    if moved ~= lane then call('HSET', RUNS, id, sub(body, 1, from) .. encode(moved) .. sub(body, to + 1)) end
    return moved
end

-- A run is the affair of the node that its lane names, if it names one.
local function join_node(id, lane, ready)
    local _, node = queue_of(lane)
    if node and node ~= '' then
        call('ZADD', P .. 'assigned:' .. node, ready, id)
        call('SADD', P .. 'assignees', node)
    end
end

local function leave_node(id, lane)
    local _, node = queue_of(lane)
    if node and node ~= '' and call('ZREM', P .. 'assigned:' .. node, id) == 1
        and call('EXISTS', P .. 'assigned:' .. node) == 0 then
        call('SREM', P .. 'assignees', node)
    end
end
