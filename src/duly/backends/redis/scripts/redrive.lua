--! use now waiting ring unique
-- redrive: failed, lost and cancelled runs run again: same id, failures and losses 0, ready now; old attempts stay.
--
-- ARGV: now or '', ids (msgpack). At most 500 a call.
-- Returns for each: 0 done, 1 not ended that way, 2 another run has its dedupe key, 3 unknown. A repeat finds them waiting.
local now = now_or(ARGV[1])
local replies = {}

local function again(id, run, life)
    run = read_body(excuse(id, call('HGET', RUNS, id)))
    call('ZREM', P .. 'ended:' .. life.state, id)
    life.state, life.ready, life.failures, life.losses = PENDING, now, 0, 0
    life.flags = life.flags - life.flags % BOUND
    life.reason, life.finished = nil, 0
    save_life(id, life)
    call('SADD', TOUCHED, id)
    if run.dedupe then call('HSET', P .. 'dedupe', run.handler .. '\0' .. run.dedupe, id) end
    enlist(id, run)
    local queue, node = queue_of(run.lane)
    call('HINCRBY', P .. 'depths', 'w' .. queue, 1)
    if node then
        hold(id, run, life, UNPLACED)
    elseif run.group then
        wait(id, sub(run.lane, 1, 1), run.mark, now)
    else
        local lane = run.mark .. run.lane
        call('ZADD', P .. 'ready:' .. lane, now, id)
        call('SADD', P .. 'lanes', lane)
    end
end

for i, id in ipairs(cmsgpack.unpack(ARGV[2])) do
    local run, life = load_run(id)
    if not run then
        replies[i] = 3
    elseif not life or (life.state ~= FAILED and life.state ~= CANCELLED and life.state ~= LOST) then
        replies[i] = 1
    elseif run.dedupe and (twin_of(run, now) or id) ~= id then
        replies[i] = 2
    else
        again(id, run, life)
        replies[i] = 0
    end
end
ring()
return replies
