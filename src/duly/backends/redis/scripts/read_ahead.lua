--! use clock read_runs waiting_sets merge
-- read_ahead: runs of schedules that are ready after now and by an instant, by ready time, then id. Changes nothing.
--
-- ARGV: now or '', the instant, a node, where to begin (from 0), of how many one is read, how many to read at most (up to
-- 1,000). Left out are runs for other nodes, of paused queues, and of paused or removed jobs.
-- Returns now, ids, what the function `read_runs` returns for them, and whether there is more: 1 or 0.
local now = now_or(ARGV[1])
local node, from, step, limit = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local last, names = from + step * limit, {}
for _, name in ipairs(call('SMEMBERS', WAITING_SETS)) do
    if byte(name) == MARK_BYTE then names[#names + 1] = name end
end
local entries = first_of(WAITING, names, ARGV[2], last + 1, format('(%.0f', now))
local ids = {}
for i = from + 1, math.min(#entries, last), step do ids[#ids + 1] = entries[i][2] end
if #ids == 0 then return { now, ids, {}, 0 } end

local rare, chosen = call('EXISTS', P .. 'paused', P .. 'blocked') > 0, {}
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    local ok, _, handler, job, queue_key = pcall(decode_some, body or '', 3, HANDLER_AT)
    if body and ok and queue_key then
        local queue, assignee = split_queue_key(queue_key)
        local stopped = rare
            and (call('SISMEMBER', P .. 'paused', queue) == 1 or call('SISMEMBER', P .. 'blocked', job or handler) == 1)
        if (not assignee or assignee == node) and not stopped then chosen[#chosen + 1] = ids[i] end
    end
end
return { now, chosen, read_runs(chosen), #entries > last and 1 or 0 }
