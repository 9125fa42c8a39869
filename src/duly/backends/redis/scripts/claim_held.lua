--! use clock fences waiting
-- claim_held: claims one run that is held under a key, as `claim` does with queued ones: if it is ready, in its group or
-- without one, and neither its job nor its queue is paused. A repeat of the request returns the same claim while it runs.
--
-- ARGV: now or '', the key, id, node, request, lease in microseconds.
-- Returns expiry, body and new status; empty strings if it was not claimed.
local now, server = now_or(ARGV[1])
local key, id = ARGV[2], ARGV[3]
local node, request, expires = ARGV[4], tonumber(ARGV[5]), now + tonumber(ARGV[6])
local run, status = load_run(id)
if not status then return { '', '', '' } end
if status.state == RUNNING and status.node == node and status.request == request then
    return { call('ZSCORE', RUNNING_SET, id), run.body, call('HGET', STATUSES, id) }
end
local queue, assignee = split_queue_key(run.queue_key)
if status.state ~= PENDING or status.hold ~= key or status.ready > now
    or run.group and not list_has(call('HGET', GROUPS, run.group), id)
    or call('SISMEMBER', P .. 'blocked', run.job) == 1 or call('SISMEMBER', P .. 'paused', queue) == 1
    or call('SISMEMBER', P .. 'paused', '*') == 1 then
    return { '', '', '' }
end

remove_from_index(id, run, status)
call('SREM', TOUCHED, id)
if bit.band(run.traits, SCHEDULED) == 0 then call('SREM', P .. 'job:' .. run.job, id) end
local fence = last_fence(server) + 1
store_fence(fence)
local flags = (run.traits % SCHEDULED ~= 0 and RESERVING or 0) + (assignee and ASSIGNED or 0)
start_attempt(status, flags, fence, node, request, now)
local text = write_status(status)
call('HSET', STATUSES, id, text)
call('ZADD', RUNNING_SET, format('%.0f', expires), id)
call('HINCRBY', P .. 'depths', 'w' .. queue, -1)
call('HINCRBY', P .. 'depths', 'r' .. queue, 1)
return { format('%.0f', expires), run.body, text }
