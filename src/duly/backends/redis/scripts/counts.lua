--! use now record
-- counts: how many runs there are by state, and by queue what waits and runs. Changes nothing.
--
-- ARGV: now or ''. Returns the totals of final states (flat), the depths of queues (flat: 'w' or 'r' and the queue,
-- number), the number queued and the oldest ready time by lane (flat, three for each), and the paused queues.
-- What is ready and not yet promoted counts as queued; looking at that is the only work that grows with anything.
local now = now_or(ARGV[1])
local lanes = {}

local function add(lane, number, oldest)
    local entry = lanes[lane]
    if not entry then
        entry = { 0, oldest }
        lanes[lane] = entry
    end
    entry[1] = entry[1] + number
    if tonumber(oldest) < tonumber(entry[2]) then entry[2] = oldest end
end

for _, name in ipairs(call('SMEMBERS', P .. 'lanes')) do
    local key, lane = P .. 'ready:' .. name, byte(name) == MARK_BYTE and sub(name, 2) or name
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[1] then add(lane, call('ZCARD', key), first[2]) end
end
for _, level in ipairs(call('SMEMBERS', P .. 'levels')) do
    local ready = call('ZRANGEBYSCORE', WAITING .. level, '-inf', now, 'WITHSCORES')
    local ids = {}
    for i = 1, #ready, 2 do ids[#ids + 1] = ready[i] end
    for i, body in ipairs(#ids > 0 and get_many(RUNS, ids) or {}) do
        local _, _, _, lane = decode_some(body, 3, HANDLER_AT)
        add(lane, 1, ready[i * 2])
    end
end
local queued = {}
for lane, entry in pairs(lanes) do
    queued[#queued + 1] = lane
    queued[#queued + 1] = entry[1]
    queued[#queued + 1] = entry[2]
end
return { call('HGETALL', P .. 'totals'), call('HGETALL', P .. 'depths'), queued, call('SMEMBERS', P .. 'paused') }
