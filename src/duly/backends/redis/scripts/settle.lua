--! use job_counters plain_completions notify pair_lists
--! lazy waiting
-- settle: applies each settlement whose run is running under its fence.
--
-- ARGV: rows (msgpack, flat, nine for each), the texts of all rows concatenated, keys (msgpack, flat: job and queue).
-- A row: id, length of the new status, length of the attempt's record (0: none), number of its key, outcome (0: a release
-- that counts nothing), start, end, ready time, and the group, if that is the only reservation ('': read the body). The
-- texts are status and attempt of each row, row by row. At most 500 rows a call.
-- Final states free dedupe key and group; a wish to cancel turns a retry into the end and keeps its reason; the history
-- grows; counters and totals change once per key. A row with the fence of a run that is no longer running was applied
-- before: it changes nothing, but a result is stored where a completed run has none.
-- Further ARGV: the plain completions, their texts and sums (`plain_completions`), none with the run of another row, and
-- only with few keys. If they cannot be stored together, they are treated as rows after the others.
-- Returns how many settlements were ever applied (0 if none is now), and the numbers (from 1) of the stale rows; plain
-- completions are numbered after the others.
--! const FENCE_AT 5
--! const FENCE_TO 12

local rows_text, texts, keys_text = ARGV[1], ARGV[2], ARGV[3]
local rows, keys = cmsgpack.unpack(rows_text), cmsgpack.unpack(keys_text)
local completed_plainly = 0
if ARGV[4] ~= '' then
    local plain = cmsgpack.unpack(ARGV[4])
    local stored, completed = complete_all(plain, ARGV[5], cmsgpack.unpack(ARGV[6]), keys)
    if not stored then
        full_rows(plain, ARGV[5], rows)
        texts, rows_text = texts .. ARGV[5], nil
    else
        completed_plainly = call('HINCRBY', META, 'settled', #completed)
        if call('EXISTS', P .. 'awaited') == 1 then lazy().publish_ended(completed) end
    end
end
if #rows == 0 then return { completed_plainly, {} } end
local n = #rows / 9
local ids = {}
for i = 1, n do ids[i] = rows[i * 9 - 8] end
local statuses = call('HMGET', STATUSES, unpack(ids))

local stale, applied, ended_ids, settled = {}, {}, {}, {}
local status_args, ended, retried = {}, {}, {}
local other_states, depths, urgent = {}, {}, false -- other_states: of rows that do not count as completed (`count_rows`)

local function add_attempt(id, attempt)
    local stored = call('HGET', P .. 'attempts', id)
    if stored then
        attempt = pack('>I4', unpack_from('>I4', stored) + 1) .. sub(stored, 5) .. attempt
    else
        attempt = pack('>I4', 1) .. attempt
    end
    call('HSET', P .. 'attempts', id, attempt)
end

-- The fast path for runs with a group or a dedupe key and no other special flag: the id lists of all their groups are
-- read with one HMGET, changed here, and written with one HSET, as long as no run is held for any group (`has_holds`).
local reserving, groups, members, group_of = {}, {}, {}, {}
for i = 1, n do
    if statuses[i] and byte(statuses[i], 3) == RESERVING then
        local group = rows[i * 9]
        if group == '' then
            reserving[#reserving + 1] = ids[i]
        else
            group_of[ids[i]] = group
            groups[#groups + 1] = group
        end
    end
end
local bodies, has_holds = {}, false
if #reserving + #groups > 0 then
    has_holds = call('EXISTS', P .. 'holds') == 1
    for i, body in ipairs(#reserving > 0 and call('HMGET', RUNS, unpack(reserving)) or {}) do
        bodies[reserving[i]] = body
        if not has_holds and byte(body, TRAITS_AT) % DEDUPED == GROUPED then
            local _, _, _, _, group = decode_some(body, 4, HANDLER_AT)
            group_of[reserving[i]] = group
            groups[#groups + 1] = group
        end
    end
    for i, text in ipairs(#groups > 0 and not has_holds and call('HMGET', P .. 'groups', unpack(groups)) or {}) do
        members[groups[i]] = text
    end
end

local function write_members()
    local empty, changed = {}, {}
    for group, text in pairs(members) do
        if text then
            changed[#changed + 1] = group
            changed[#changed + 1] = text
        else
            empty[#empty + 1] = group
        end
    end
    if #empty > 0 then call('HDEL', P .. 'groups', unpack(empty)) end
    if #changed > 0 then call('HSET', P .. 'groups', unpack(changed)) end
    members = {}
end

local function free_group_and_key(id, body)
    local group = group_of[id]
    if group and has_holds then
        lazy().free_reservations(id, { group = group })
        return
    end
    if group then
        local text = members[group]
        if text == ' ' .. id .. ' ' then
            members[group] = false
        elseif text then
            members[group] = lazy().list_without(text, id)
        elseif text == nil then
            lazy().remove_from_list(P .. 'groups', group, id)
        end
    end
    if body and (has_holds or byte(body, TRAITS_AT) % SCHEDULED >= DEDUPED) then
        local _, handler, _, _, its_group, _, _, dedupe = decode_some(body, 7, HANDLER_AT)
        if has_holds then
            lazy().free_reservations(id, { handler = handler, group = its_group, dedupe = dedupe })
        elseif call('HGET', P .. 'dedupe', handler .. '\0' .. dedupe) == id then
            call('HDEL', P .. 'dedupe', handler .. '\0' .. dedupe)
        end
    end
end

-- Settles a run that the fast path leaves out: one with progress, a wish to cancel, an assignment, or that runs again.
-- Returns its new state and the status to store.
local function settle_special(id, old, new, queue, finished, ready, attempted)
    local lib = lazy()
    local before, status = lib.read_status(old), lib.read_status(new)
    if status.state == PENDING and before.flags % RESERVING == CANCELLING then
        status.state, status.finished, status.reason, status.hold = CANCELLED, finished, before.reason, nil
    elseif status.state == CANCELLED and not status.reason then
        status.reason = before.reason
    end
    status.flags = before.flags
    if before.flags % ONLY_HELD >= HAS_PROGRESS then status.progress = before.progress end
    local assigned = before.flags >= ASSIGNED
    if assigned then
        status.flags = status.flags - ASSIGNED
        lib.remove_from_node(id, '0@' .. before.node)
    end
    if status.state == PENDING then
        local run = lib.read_body(call('HGET', RUNS, id))
        if attempted then lib.lift_start_limit(id, run) end -- an attempt that began was in time
        if assigned then lib.set_node(id, run, '') end
        if assigned or status.hold then
            lib.hold(id, run, status, status.hold or UNPLACED)
            urgent = true -- the service that assigns or releases held runs has work
        else
            urgent = lib.is_earliest(ready) or urgent
            lib.add_pending(id, sub(run.queue_key, 1, 1), run.body, ready)
            call('SADD', TOUCHED, id)
        end
        lib.add_to_job(id, run)
        retried[queue] = (retried[queue] or 0) + 1
    elseif status.flags % HAS_PROGRESS >= RESERVING then
        write_members()
        lib.free_reservations(id, lib.read_body(call('HGET', RUNS, id)))
    end
    return status.state, lib.write_status(status)
end

-- A completion in the user's transaction leaves the result to a later settlement. The tail begins with the result.
local function add_result(id, old, new)
    local lib = lazy()
    local before = lib.read_status(old)
    if sub(before.tail, 1, 1) == NIL then
        before.tail = lib.read_status(new).tail
        applied[id] = lib.write_status(before)
        call('HSET', STATUSES, id, applied[id])
    end
end

local at, done = 1, 0
for i = 1, n do
    local k = i * 9 - 1
    local id, status_size, attempt_size, key = rows[k - 7], rows[k - 6], rows[k - 5], rows[k - 4]
    local new = sub(texts, at, at + status_size - 1)
    local old = applied[id] or statuses[i]
    if not old or sub(old, FENCE_AT, FENCE_TO) ~= sub(new, FENCE_AT, FENCE_TO) then
        stale[#stale + 1], other_states[i] = i, '-'
    elseif byte(old, 2) ~= RUNNING then
        other_states[i] = '-'
        if byte(old, 2) == COMPLETED and byte(new, 2) == COMPLETED then add_result(id, old, new) end
    else
        local finished = rows[k - 1]
        local state, queue = byte(new, 2), keys[key * 2]
        local flags = byte(old, 3)
        if state == PENDING or state == CANCELLED or flags > RESERVING or flags == CANCELLING then
            state, new = settle_special(id, old, new, queue, finished, rows[k], attempt_size > 0)
        elseif flags == RESERVING then
            free_group_and_key(id, bodies[id])
        end
        if attempt_size > 0 then add_attempt(id, sub(texts, at + status_size, at + status_size + attempt_size - 1)) end
        done = done + 1
        applied[id], settled[done] = new, id
        status_args[done * 2 - 1], status_args[done * 2] = id, new
        if state ~= PENDING then append_pair(ended, state, finished, id) end
        depths[queue] = (depths[queue] or 0) + 1
        if state ~= COMPLETED then other_states[i] = state end
    end
    at = at + status_size + attempt_size
end
if done == 0 then return { completed_plainly, stale } end

call('HSET', STATUSES, unpack(status_args))
call('ZREM', RUNNING_SET, unpack(settled))
write_members()
for state, entries in pairs(ended) do
    call('ZADD', P .. 'ended:' .. state, unpack(entries))
    call('HINCRBY', P .. 'totals', state, #entries / 2)
    if call('EXISTS', P .. 'awaited') == 1 then
        for i = 2, #entries, 2 do ended_ids[#ended_ids + 1] = entries[i] end
    end
end
if #ended_ids > 0 then lazy().publish_ended(ended_ids) end
for queue, number in pairs(depths) do call('HINCRBY', P .. 'depths', 'r' .. queue, -number) end
for queue, number in pairs(retried) do call('HINCRBY', P .. 'depths', 'w' .. queue, number) end
local states = string.rep(COMPLETED, n)
if next(other_states) then
    local signs = {}
    for i = 1, n do signs[i] = other_states[i] or COMPLETED end
    states = table.concat(signs)
end
count_settled(rows, keys, states, rows_text or encode(rows), keys_text)
if urgent or (loaded and loaded.unheld_count() > 0) then notify() end
return { call('HINCRBY', META, 'settled', done), stale }
