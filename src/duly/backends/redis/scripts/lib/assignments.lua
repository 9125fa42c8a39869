--! use run_records
-- Assignment to nodes: the queue key in the body names the node. `assigned:<node>` has the runs that the node was given
-- and that are not held, running or not, by ready time; `assignees` lists the nodes that have any.

-- Assigns a run to a node: '' for one that waits for an assignment, nil for any node.
local function set_node(id, run, node)
    local queue_key = sub(run.queue_key, 1, 1) .. split_queue_key(run.queue_key) .. (node and '@' .. node or '')
    if queue_key == run.queue_key then return end
    local from = decode_some(run.body, 2, HANDLER_AT)
    local to = decode_some(run.body, 1, from)
    run.queue_key = queue_key
    run.body = sub(run.body, 1, from) .. encode(queue_key) .. sub(run.body, to + 1)
    call('HSET', RUNS, id, run.body)
end

-- Adds a run to the list of the node that its queue key names, if it names one.
local function add_to_node(id, queue_key, ready)
    local _, node = split_queue_key(queue_key)
    if node and node ~= '' then
        call('ZADD', P .. 'assigned:' .. node, ready, id)
        call('SADD', P .. 'assignees', node)
    end
end

local function remove_from_node(id, queue_key)
    local _, node = split_queue_key(queue_key)
    if node and node ~= '' and call('ZREM', P .. 'assigned:' .. node, id) == 1
        and call('EXISTS', P .. 'assigned:' .. node) == 0 then
        call('SREM', P .. 'assignees', node)
    end
end
