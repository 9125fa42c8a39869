--! use layout fences
--! lazy run_records
-- What the scripts that claim runs share: requests, what the runs have in common, and the start of attempts.

-- Whether a node has made this request before. Stores it otherwise.
local function is_repeat(node, request)
    local last = tonumber(call('SET', P .. 'request:' .. node, request, 'EX', 86400, 'GET') or -1)
    if request > last then return false end
    call('SET', P .. 'request:' .. node, format('%.0f', last), 'EX', 86400)
    return true
end

-- What a request claimed and is still running, among all that runs: ids and expiries (flat), bodies, statuses. That is slow,
-- but rare.
local function claimed_before(node, request)
    local ids, bodies, statuses = {}, {}, {}
    local running = call('ZRANGE', RUNNING_SET, 0, -1)
    for i, text in ipairs(#running > 0 and get_many(STATUSES, running) or {}) do
        local status = text and lazy().read_status(text)
        if status and status.node == node and status.request == request then
            ids[#ids + 1] = running[i]
            ids[#ids + 1] = call('ZSCORE', RUNNING_SET, running[i])
            bodies[#bodies + 1] = call('HGET', RUNS, running[i])
            statuses[#statuses + 1] = text
        end
    end
    return ids, bodies, statuses
end

-- Heads: what bodies have in common that begin alike (traits, handler, job, queue key, group), decoded once. Most runs of a
-- claim are of a few jobs. `heads` lists them and finds them by their bytes; `head_size` is the length of the last one.
local heads, head_size = {}, 0

local function head_in(id, body)
    local head = heads[sub(body, TRAITS_AT, TRAITS_AT + head_size - 1)]
    if head then return head end
    local handler, job, queue_key, group, to = read_head(id, body)
    if not handler then return false end
    local bytes = sub(body, TRAITS_AT, to)
    head, head_size = heads[bytes], #bytes
    if not head then
        head = { traits = byte(body, TRAITS_AT), handler = handler, job = job, queue_key = queue_key, group = group, count = 0 }
        heads[bytes], heads[#heads + 1] = head, head
    end
    return head
end

-- Adds to a head what the statuses of its attempts begin with. `assigned`: its runs are those of one node.
local function prepare(head)
    head.flags = (head.traits % SCHEDULED ~= 0 and RESERVING or 0) + (head.assigned and ASSIGNED or 0)
    head.prefix = pack('BBBB', 0x9f, RUNNING, head.flags, 0xcf)
end

-- Starts attempts at runs that are in no index any more: `claimed` has id and ready time of each (flat), `statuses` the
-- previous status of those that had one, by number. The `count` of each head says how many of its runs they are. Returns
-- the first fence; the others follow.
local function start_attempts(ids, claimed, head_of, statuses, node, request, now, expires, server)
    local first = last_fence(server) + 1
    store_fence(first + #ids - 1)
    local status_args, running_args, until_text = {}, { 'inf', LONG_NAME }, format('%.0f', expires)
    -- All that follows the ready time is the same for every run without a previous status: it is packed once.
    local suffix = pack('>BI4BI4Bi8Bi8BI8', 0xce, 0, 0xce, 0, 0xd3, now, 0xd3, 0, 0xcf, request)
        .. encode(node) .. NIL .. NIL .. NIL .. NIL .. NIL
    local last_ready, ready_and_suffix
    for i = 1, #ids do
        local k, fence, ready, text, head = i * 2, first + i - 1, claimed[i * 2], statuses[i], head_of[i]
        status_args[k - 1] = ids[i]
        if text then
            local status = lazy().read_status(text)
            status.ready = tonumber(ready)
            lazy().start_attempt(status, head.flags, fence, node, request, now)
            status_args[k] = lazy().write_status(status)
        else
            if ready ~= last_ready then
                last_ready, ready_and_suffix = ready, pack('>Bi8', 0xd3, ready) .. suffix
            end
            status_args[k] = head.prefix .. pack('>I8', fence) .. ready_and_suffix
        end
        running_args[k + 1], running_args[k + 2] = until_text, ids[i]
    end
    call_many('HSET', STATUSES, status_args)
    call_many('ZADD', RUNNING_SET, running_args)
    local moved = {}
    for _, head in ipairs(heads) do
        if head.count > 0 then
            local queue = split_queue_key(head.queue_key)
            moved[queue] = (moved[queue] or 0) + head.count
        end
    end
    for queue, count in pairs(moved) do
        call('HINCRBY', P .. 'depths', 'w' .. queue, -count)
        call('HINCRBY', P .. 'depths', 'r' .. queue, count)
    end
    return first
end
