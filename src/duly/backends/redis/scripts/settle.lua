--! use tallying ring entering
--! lazily waiting
-- settle: applies each settlement whose run is running under its fence.
--
-- ARGV: rows (msgpack, flat, nine for each), texts put together, keys (msgpack, flat: job and queue).
-- A row: id, length of the new life, length of the attempt's record (0: none), number of its key, outcome (0: a release
-- that counts nothing), start, end, ready time, and the group, if that is all it has to give back ('': look it up). The
-- texts are life and attempt of each row in turn.
-- Final states free dedupe key and group; a wish to cancel turns a retry into its end and keeps its reason; the history
-- grows; counters and totals change once per key. A row whose fence is that of a run which is no longer running was
-- applied before: it changes nothing, but a result is kept where a completed run has none.
-- Returns the numbers (from 1) of the stale rows. At most 500 rows a call.
--! const FENCE_AT 5
--! const FENCE_TO 12

local rows, texts, keys = cmsgpack.unpack(ARGV[1]), ARGV[2], cmsgpack.unpack(ARGV[3])
local n = #rows / 9
local ids = {}
for i = 1, n do ids[i] = rows[i * 9 - 8] end
local lives = call('HMGET', LIVES, unpack(ids))

local stale, applied, ended_ids, gone = {}, {}, {}, {}
local life_args, ended, again = {}, {}, {}
local odd, depths, urgent = {}, {}, false -- odd: what is to be counted otherwise than as completed, see `count_rows`

local function add_attempt(id, attempt)
    local kept = call('HGET', P .. 'attempts', id)
    if kept then
        attempt = pack('>I4', unpack_from('>I4', kept) + 1) .. sub(kept, 5) .. attempt
    else
        attempt = pack('>I4', 1) .. attempt
    end
    call('HSET', P .. 'attempts', id, attempt)
end

-- Those that have a group or a dedupe key and nothing else out of the ordinary give both back, all at once if nobody is
-- in line for a place.
local bound, groups, rosters, group_of = {}, {}, {}, {}
for i = 1, n do
    if lives[i] and byte(lives[i], 3) == BOUND then
        local group = rows[i * 9]
        if group == '' then
            bound[#bound + 1] = ids[i]
        else
            group_of[ids[i]] = group
            groups[#groups + 1] = group
        end
    end
end
local bodies, lines = {}, false
if #bound + #groups > 0 then
    lines = call('EXISTS', P .. 'holds') == 1
    for i, body in ipairs(#bound > 0 and call('HMGET', RUNS, unpack(bound)) or {}) do
        bodies[bound[i]] = body
        if not lines and byte(body, TRAITS_AT) % DEDUPED == GROUPED then
            local _, _, _, _, group = decode_some(body, 4, HANDLER_AT)
            group_of[bound[i]] = group
            groups[#groups + 1] = group
        end
    end
    for i, text in ipairs(#groups > 0 and not lines and call('HMGET', P .. 'groups', unpack(groups)) or {}) do
        rosters[groups[i]] = text
    end
end

local function write_rosters()
    local empty, kept = {}, {}
    for group, text in pairs(rosters) do
        if text then
            kept[#kept + 1] = group
            kept[#kept + 1] = text
        else
            empty[#empty + 1] = group
        end
    end
    if #empty > 0 then call('HDEL', P .. 'groups', unpack(empty)) end
    if #kept > 0 then call('HSET', P .. 'groups', unpack(kept)) end
    rosters = {}
end

local function let_go(id, body)
    local group = group_of[id]
    if group and lines then
        lazily().release(id, { group = group })
        return
    end
    if group then
        local text = rosters[group]
        if text == ' ' .. id .. ' ' then
            rosters[group] = false
        elseif text then
            rosters[group] = lazily().roster_without(text, id)
        elseif text == nil then
            lazily().leave(P .. 'groups', group, id)
        end
    end
    if body and (lines or byte(body, TRAITS_AT) % SCHEDULED >= DEDUPED) then
        local _, handler, _, _, its_group, _, _, dedupe = decode_some(body, 7, HANDLER_AT)
        if lines then
            lazily().release(id, { handler = handler, group = its_group, dedupe = dedupe })
        elseif call('HGET', P .. 'dedupe', handler .. '\0' .. dedupe) == id then
            call('HDEL', P .. 'dedupe', handler .. '\0' .. dedupe)
        end
    end
end

-- What the plain way leaves out: progress, wishes to cancel, groups and dedupe keys, and what runs again.
-- Returns the state it comes to and the life as it is to be stored.
local function settle_with_care(id, old, new, queue, finished, ready, attempted)
    local care = lazily()
    local before, life = care.read_life(old), care.read_life(new)
    if life.state == PENDING and before.flags % BOUND == CANCELLING then
        life.state, life.finished, life.reason, life.hold = CANCELLED, finished, before.reason, nil
    elseif life.state == CANCELLED and not life.reason then
        life.reason = before.reason
    end
    life.flags = before.flags
    if before.flags % FRESH >= TOLD then
        local own, theirs = decode_some(before.tail, 1, 0), decode_some(life.tail, 1, 0)
        life.tail = sub(before.tail, 1, own) .. sub(life.tail, theirs + 1)
    end
    local placed = before.flags >= ASSIGNED
    if placed then
        life.flags = life.flags - ASSIGNED
        care.leave_node(id, '0@' .. before.node)
    end
    if life.state == PENDING then
        local body = call('HGET', RUNS, id)
        if attempted then body = care.excuse(id, body) end -- an attempt that began was in time
        local run = care.read_body(body)
        if placed then run.lane = care.relocate(id, body, '') end
        if placed or life.hold then
            care.hold(id, run, life, life.hold or UNPLACED)
            urgent = true -- whoever places or takes runs has something to do
        else
            urgent = care.is_first(ready) or urgent
            care.wait(id, sub(run.lane, 1, 1), run.mark, ready)
            call('SADD', TOUCHED, id)
        end
        care.enlist(id, run)
        again[queue] = (again[queue] or 0) + 1
    elseif life.flags % TOLD >= BOUND then
        write_rosters()
        care.release(id, care.read_body(call('HGET', RUNS, id)))
    end
    return life.state, care.write_life(life)
end

-- A completion inside the user's own transaction leaves the result to a settlement that comes after it.
local function keep_result(id, old, new)
    local care = lazily()
    local before, late = care.read_life(old), care.read_life(new)
    local own, theirs = decode_some(before.tail, 1, 0), decode_some(late.tail, 1, 0)
    if sub(before.tail, own + 1, own + 1) == NIL then
        before.tail = sub(before.tail, 1, own) .. sub(late.tail, theirs + 1)
        applied[id] = care.write_life(before)
        call('HSET', LIVES, id, applied[id])
    end
end

local at, done = 1, 0
for i = 1, n do
    local k = i * 9 - 1
    local id, life_size, attempt_size, key = rows[k - 7], rows[k - 6], rows[k - 5], rows[k - 4]
    local new = sub(texts, at, at + life_size - 1)
    local old = applied[id] or lives[i]
    if not old or sub(old, FENCE_AT, FENCE_TO) ~= sub(new, FENCE_AT, FENCE_TO) then
        stale[#stale + 1], odd[i] = i, '-'
    elseif byte(old, 2) ~= RUNNING then
        odd[i] = '-'
        if byte(old, 2) == COMPLETED and byte(new, 2) == COMPLETED then keep_result(id, old, new) end
    else
        local finished = rows[k - 1]
        local state, queue = byte(new, 2), keys[key * 2]
        local flags = byte(old, 3)
        if state == PENDING or state == CANCELLED or flags > BOUND or flags == CANCELLING then
            state, new = settle_with_care(id, old, new, queue, finished, rows[k], attempt_size > 0)
        elseif flags == BOUND then
            let_go(id, bodies[id])
        end
        if attempt_size > 0 then add_attempt(id, sub(texts, at + life_size, at + life_size + attempt_size - 1)) end
        done = done + 1
        applied[id], gone[done] = new, id
        life_args[done * 2 - 1], life_args[done * 2] = id, new
        if state ~= PENDING then enter(ended, state, finished, id) end
        depths[queue] = (depths[queue] or 0) + 1
        if state ~= COMPLETED then odd[i] = state end
    end
    at = at + life_size + attempt_size
end
if done == 0 then return stale end

call('HSET', LIVES, unpack(life_args))
call('ZREM', RUNNING_SET, unpack(gone))
write_rosters()
for state, entries in pairs(ended) do
    call('ZADD', P .. 'ended:' .. state, unpack(entries))
    call('HINCRBY', P .. 'totals', state, #entries / 2)
    if call('EXISTS', P .. 'awaited') == 1 then
        for i = 2, #entries, 2 do ended_ids[#ended_ids + 1] = entries[i] end
    end
end
if #ended_ids > 0 then lazily().tell_ended(ended_ids) end
for queue, number in pairs(depths) do call('HINCRBY', P .. 'depths', 'r' .. queue, -number) end
for queue, number in pairs(again) do call('HINCRBY', P .. 'depths', 'w' .. queue, number) end
local states = string.rep(COMPLETED, n)
if next(odd) then
    local signs = {}
    for i = 1, n do signs[i] = odd[i] or COMPLETED end
    states = table.concat(signs)
end
tally(rows, keys, states, ARGV[1], ARGV[3])
if urgent or (made and made.times_put_back() > 0) then ring() end
return stale
