--! use clock take_over
-- take_over: takes over the claims of a process that has ended, those that expire first.
--
-- ARGV: now or '', limit, lease in microseconds, node, its first and its last request. Takes no more than 1,000; a repeat
-- takes what is left. Looks at all claims of the store: there are as many as all nodes have slots, and this call is rare.
-- Returns what the function `take_over` returns.
local expires = now_or(ARGV[1]) + tonumber(ARGV[3])
local most = math.min(tonumber(ARGV[2]), 1000)
local node, first, last = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local ids, expired = {}, {}
local running = call('ZRANGE', RUNNING_SET, 0, -1)
for i, text in ipairs(#running > 0 and get_many(STATUSES, running) or {}) do
    local ok, status = pcall(read_status, text)
    if ok and status and status.node == node and status.request >= first and status.request <= last then
        ids[#ids + 1] = running[i]
        expired[running[i]] = call('ZSCORE', RUNNING_SET, running[i])
        if #ids == most then break end
    end
end
return take_over(ids, expired, expires)
