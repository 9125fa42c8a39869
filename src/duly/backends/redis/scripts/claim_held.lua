--! use now fence waiting
-- claim_held: lends one run that is held under a key, as `claim` lends queued ones: if it is ready, in its group or without one,
-- and neither its job nor its queue is paused. A repeat with the same request gives the same claim while it runs.
--
-- ARGV: now or '', the key, id, node, request, lease in microseconds.
-- Returns expiry, body and life as it is now; empty strings if it was not lent.
local now, key, id = now_or(ARGV[1]), ARGV[2], ARGV[3]
local node, request, expires = ARGV[4], tonumber(ARGV[5]), now + tonumber(ARGV[6])
local body, text = call('HGET', RUNS, id), call('HGET', LIVES, id)
if not body or not text then return { '', '', '' } end
local run, life = read_body(body), read_life(text)
if life.state == RUNNING and life.node == node and life.request == request then
    return { call('ZSCORE', RUNNING_SET, id), body, text }
end
local queue, whose = queue_of(run.lane)
if life.state ~= PENDING or life.hold ~= key or life.ready > now
    or run.group and not roster_has(call('HGET', GROUPS, run.group), id)
    or call('SISMEMBER', P .. 'blocked', run.job) == 1 or call('SISMEMBER', P .. 'paused', queue) == 1 then
    return { '', '', '' }
end

take_out(id, run, life)
call('SREM', TOUCHED, id)
if bit.band(run.traits, SCHEDULED) == 0 then call('SREM', P .. 'job:' .. run.job, id) end
local fence = last_fence(ARGV[1] == '' and now) + 1
keep_fence(fence)
local bound = (run.traits % SCHEDULED ~= 0 and BOUND or 0) + (whose and ASSIGNED or 0)
life.state, life.flags, life.fence, life.hold = RUNNING, bound + life.flags % BOUND, fence, nil
life.node, life.request, life.started, life.finished = node, request, now, 0
life.tail = NIL .. sub(life.tail, decode_some(life.tail, 1, 0) + 1) -- what the last attempt said of its progress
text = write_life(life)
call('HSET', LIVES, id, text)
call('ZADD', RUNNING_SET, format('%.0f', expires), id)
call('HINCRBY', P .. 'depths', 'w' .. queue, -1)
call('HINCRBY', P .. 'depths', 'r' .. queue, 1)
return { format('%.0f', expires), body, text }
