--! use now record
-- assigned: what nodes were given and is not held, but for ready runs whose queue is paused. Changes nothing.
--
-- ARGV: now or ''. Returns for each node its name, how much of it is ready or running, and how much is not yet (flat).
local now, found, paused = now_or(ARGV[1]), {}, {}
for _, queue in ipairs(call('SMEMBERS', P .. 'paused')) do paused[queue] = true end

-- How many of these, which are ready or running, wait in a paused queue.
local function stopped(ids)
    local number = 0
    local bodies, lives = get_many(RUNS, ids), get_many(LIVES, ids)
    for i = 1, #ids do
        local _, _, _, lane = decode_some(bodies[i], 3, HANDLER_AT)
        if paused[queue_of(lane)] and not (lives[i] and byte(lives[i], 2) == RUNNING) then number = number + 1 end
    end
    return number
end

for _, node in ipairs(call('SMEMBERS', P .. 'assignees')) do
    local key, n = P .. 'assigned:' .. node, #found
    local due = call('ZCOUNT', key, '-inf', now)
    found[n + 1], found[n + 2], found[n + 3] = node, due, call('ZCARD', key) - due
    if due > 0 and next(paused) ~= nil then
        found[n + 2] = due - stopped(call('ZRANGEBYSCORE', key, '-inf', now))
    end
end
return found
