--! use clock waiting notify dedupe
-- redrive: failed, lost and cancelled runs run again: same id, failures and losses 0, ready now; old attempts stay.
--
-- ARGV: now or '', ids (msgpack), a new payload (msgpack) or ''. At most 500 a call. Returns for each: 0 done, 1 not in one of these states, 2 another run
-- has its dedupe key, 3 unknown. A repeat finds them waiting.
local now = now_or(ARGV[1])
local payload = ARGV[3] or ''
local replies = {}

-- The body with the new payload. Lua cannot decode the old one, which is a msgpack `bin` after the thirteen fields from the
-- handler to the revision: its first byte says how many bytes its length takes.
local function with_new_payload(body)
    local at = decode_some(body, 13, HANDLER_AT)
    local wide = ({ [0xc4] = 1, [0xc5] = 2, [0xc6] = 4 })[byte(body, at + 1)]
    local size = unpack_from('>I' .. wide, body, at + 2)
    return sub(body, 1, at) .. payload .. sub(body, at + 1 + wide + size + 1)
end

local function run_again(id, run, status)
    lift_start_limit(id, run)
    if payload ~= '' then
        run.body = with_new_payload(run.body)
        call('HSET', RUNS, id, run.body)
    end
    call('ZREM', P .. 'ended:' .. status.state, id)
    status.state, status.ready, status.failures, status.losses = PENDING, now, 0, 0
    status.flags = status.flags - status.flags % RESERVING
    status.reason, status.finished = nil, 0
    store_status(id, status)
    call('SADD', TOUCHED, id)
    if run.dedupe then take_dedupe_key(id, run) end
    add_to_job(id, run)
    local queue, node = split_queue_key(run.queue_key)
    call('HINCRBY', P .. 'depths', 'w' .. queue, 1)
    if node then
        hold(id, run, status, UNPLACED)
    elseif run.group then
        add_pending(id, sub(run.queue_key, 1, 1), run.body, now)
    else
        add_queued(id, run, now)
    end
end

for i, id in ipairs(cmsgpack.unpack(ARGV[2])) do
    local run, status = load_run(id)
    if not run then
        replies[i] = 3
    elseif not status or (status.state ~= FAILED and status.state ~= CANCELLED and status.state ~= LOST) then
        replies[i] = 1
    elseif run.dedupe and (duplicate_of(run, now) or id) ~= id then
        replies[i] = 2
    else
        run_again(id, run, status)
        replies[i] = 0
    end
end
notify()
return replies
