--! use clock layout
-- assigned: how many runs nodes were given that are not held, without ready runs of a paused queue. Changes nothing.
--
-- ARGV: now or ''. Returns for each node its name, how many are ready or running, and how many will be ready later (flat).
local now, found, paused = now_or(ARGV[1]), {}, {}
for _, queue in ipairs(call('SMEMBERS', P .. 'paused')) do paused[queue] = true end

-- How many of these, which are ready or running, wait in a paused queue.
local function count_paused(ids)
    local count = 0
    local bodies, statuses = get_many(RUNS, ids), get_many(STATUSES, ids)
    for i = 1, #ids do
        local _, _, _, queue_key = decode_some(bodies[i], 3, HANDLER_AT)
        local running = statuses[i] and byte(statuses[i], 2) == RUNNING
        if (paused[split_queue_key(queue_key)] or paused['*']) and not running then count = count + 1 end
    end
    return count
end

for _, node in ipairs(call('SMEMBERS', P .. 'assignees')) do
    local key, n = P .. 'assigned:' .. node, #found
    local due = call('ZCOUNT', key, '-inf', now)
    found[n + 1], found[n + 2], found[n + 3] = node, due, call('ZCARD', key) - due
    if due > 0 and next(paused) ~= nil then
        found[n + 2] = due - count_paused(call('ZRANGEBYSCORE', key, '-inf', now))
    end
end
return found
