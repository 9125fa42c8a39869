--! use clock layout
-- counts: how many runs there are by state, and how many wait and run by queue. Changes nothing.
--
-- ARGV: now or ''. Returns the totals of final states (flat), the depths of queues (flat: 'w' or 'r' and the queue,
-- number), the number queued and the oldest ready time by queue key (flat, three for each), and the paused queues.
-- A run that is ready and not yet promoted counts as queued; reading those is the only work that grows with anything.
local now = now_or(ARGV[1])
local queued = {}

local function add(queue_key, number, oldest)
    local entry = queued[queue_key]
    if not entry then
        entry = { 0, oldest }
        queued[queue_key] = entry
    end
    entry[1] = entry[1] + number
    if tonumber(oldest) < tonumber(entry[2]) then entry[2] = oldest end
end

for _, name in ipairs(call('SMEMBERS', P .. 'lanes')) do
    local key, queue_key = P .. 'ready:' .. name, byte(name) == MARK_BYTE and sub(name, 2) or name
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[1] then add(queue_key, call('ZCARD', key), first[2]) end
end
for _, name in ipairs(call('SMEMBERS', P .. 'levels')) do
    local ready = call('ZRANGEBYSCORE', WAITING .. name, '-inf', now, 'WITHSCORES')
    local ids = {}
    for i = 1, #ready, 2 do ids[#ids + 1] = ready[i] end
    for i, body in ipairs(#ids > 0 and get_many(RUNS, ids) or {}) do
        local _, _, _, queue_key = decode_some(body, 3, HANDLER_AT)
        add(queue_key, 1, ready[i * 2])
    end
end
local flat = {}
for queue_key, entry in pairs(queued) do
    local n = #flat
    flat[n + 1], flat[n + 2], flat[n + 3] = queue_key, entry[1], entry[2]
end
return { call('HGETALL', P .. 'totals'), call('HGETALL', P .. 'depths'), flat, call('SMEMBERS', P .. 'paused') }
