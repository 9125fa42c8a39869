--! use clock fences run_records heartbeats
-- reap: takes over expired claims under new fences, the longest expired first; none during an amnesty, nor after a silence
-- that shows an outage of the store.
--
-- ARGV: now or '', limit, lease in microseconds, the longest silence or ''. Takes no more than 1,000; a repeat takes what is
-- left. The run keeps node and start of the lost attempt, but not its request: a repeat of that claim must not learn the
-- new fence. Returns expiry, ids, their bodies in one string, their new statuses, and when the lost claims expired.
local now = now_or(ARGV[1])
local expires = now + tonumber(ARGV[3])
local most = math.min(tonumber(ARGV[2]), 1000)
local ids, expired = {}, {}
local lapsed = call('ZRANGEBYSCORE', RUNNING_SET, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #lapsed, 2 do
    ids[#ids + 1] = lapsed[i]
    expired[lapsed[i]] = lapsed[i + 1]
end
if #ids == 0 or now < tonumber(call('HGET', META, 'spared_until') or '0') or silent_since(ARGV[4], now) then
    return { expires, {}, '', {}, {} }
end
local fence = last_fence()
store_fence(fence + #ids)
local found, bodies, statuses, running, changed, before = {}, {}, {}, {}, {}, {}
local texts = call('HMGET', STATUSES, unpack(ids))
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    local ok, status = pcall(read_status, texts[i])
    if ok and body then
        local n = #found + 1
        fence = fence + 1
        status.fence, status.request = fence, 0
        found[n], bodies[n], statuses[n], before[n] = ids[i], body, write_status(status), expired[ids[i]]
        running[n * 2 - 1], running[n * 2] = expires, ids[i]
        changed[n * 2 - 1], changed[n * 2] = ids[i], statuses[n]
    else -- its state is unknown: remove it from the index, or it would be the first in every call
        call('ZREM', RUNNING_SET, ids[i])
        call('SADD', P .. 'damaged', ids[i])
    end
end
if #found > 0 then
    call('HSET', STATUSES, unpack(changed))
    call('ZADD', RUNNING_SET, unpack(running))
end
return { expires, found, table.concat(bodies), statuses, before }
