--! use fences run_records
-- Taking over: running runs get new fences, because the process that had claimed them is gone.

-- Takes over runs, given their ids and by id when their claims expire; the new claims expire at `expires`. The run keeps
-- node and start of the lost attempt, but not its request: a repeat of that claim must not learn the new fence. Returns
-- expiry, ids, their bodies in one string, their new statuses, and when the lost claims expired.
local function take_over(ids, expired, expires)
    if #ids == 0 then return { expires, {}, '', {}, {} } end
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
end
