--! use waiting ring
-- settle: applies each settlement whose run is running under its fence.
--
-- ARGV: rows (msgpack, flat, eight for each), texts put together, keys (msgpack, flat: job and queue).
-- A row: id, length of the new life, length of the attempt's record (0: none), number of its key, outcome (0: a release
-- that counts nothing), start, end, and ready time. The texts are life and attempt of each row in turn.
-- Final states free dedupe key and group; a wish to cancel turns a retry into its end and keeps its reason; the history
-- grows; counters and totals change once per key. A row whose fence is that of a run which is no longer running was
-- applied before: it changes nothing, but a result is kept where a completed run has none.
-- Returns the numbers (from 1) of the stale rows. At most 500 rows a call.
local FENCE_AT, FENCE_TO = 5, 12

local rows, texts, keys = cmsgpack.unpack(ARGV[1]), ARGV[2], cmsgpack.unpack(ARGV[3])
local n = #rows / 8
local ids = {}
for i = 1, n do ids[i] = rows[i * 8 - 7] end
local lives = call('HMGET', LIVES, unpack(ids))

local stale, applied, ended_ids = {}, {}, {}
local life_args, gone, ended, again = {}, {}, {}, {}
local counters, depths, urgent = {}, {}, false

local function count(key, state, outcome, started, elapsed)
    local queue = keys[key * 2]
    depths[queue] = (depths[queue] or 0) + 1
    if outcome == 0 then return end
    local counter = counters[key]
    if not counter then
        counter = { 0, 0, 0, 0, 0, 0, 0, 0 }
        counters[key] = counter
    end
    local slot = state == PENDING and 5 or state - 2
    counter[slot] = counter[slot] + 1
    counter[6] = counter[6] + elapsed
    if started >= counter[7] then counter[7], counter[8] = started, outcome end
end

local function add_attempt(id, attempt)
    local kept = call('HGET', P .. 'attempts', id)
    if kept then
        attempt = pack('>I4', unpack_from('>I4', kept) + 1) .. sub(kept, 5) .. attempt
    else
        attempt = pack('>I4', 1) .. attempt
    end
    call('HSET', P .. 'attempts', id, attempt)
end

-- What the plain way leaves out: progress, wishes to cancel, groups and dedupe keys, and what runs again.
local function settle_with_care(id, old, new, ready)
    local before, life = read_life(old), read_life(new)
    if life.state == PENDING and before.flags % BOUND == CANCELLING then
        life.state, life.finished, life.reason = CANCELLED, nil, before.reason
    elseif life.state == CANCELLED and not life.reason then
        life.reason = before.reason
    end
    life.flags = before.flags
    if before.flags >= TOLD then
        local at = decode_some(before.tail, 1, 0)
        local from = decode_some(life.tail, 1, 0)
        life.tail = sub(before.tail, 1, at) .. sub(life.tail, from + 1)
    end
    return life
end

local at = 1
for i = 1, n do
    local k = i * 8
    local id, life_size, attempt_size, key = rows[k - 7], rows[k - 6], rows[k - 5], rows[k - 4]
    local outcome, started, finished, ready = rows[k - 3], rows[k - 2], rows[k - 1], rows[k]
    local new = sub(texts, at, at + life_size - 1)
    local attempt = attempt_size > 0 and sub(texts, at + life_size, at + life_size + attempt_size - 1)
    at = at + life_size + attempt_size
    local old = applied[id] or lives[i]
    if not old or sub(old, FENCE_AT, FENCE_TO) ~= sub(new, FENCE_AT, FENCE_TO) then
        stale[#stale + 1] = i
    elseif byte(old, 2) ~= RUNNING then
        -- Applied before. A completion inside the user's own transaction leaves the result to this one.
        if byte(old, 2) == COMPLETED and byte(new, 2) == COMPLETED then
            local before, late = read_life(old), read_life(new)
            local own, theirs = decode_some(before.tail, 1, 0), decode_some(late.tail, 1, 0)
            if byte(before.tail, own + 1) == 192 then
                before.tail = sub(before.tail, 1, own) .. sub(late.tail, theirs + 1)
                applied[id] = write_life(before)
                save_life(id, before)
            end
        end
    else
        local state = byte(new, 2)
        if state == PENDING or state == CANCELLED or byte(old, 3) ~= 0 then
            local life = settle_with_care(id, old, new, ready)
            if life.state ~= PENDING then life.finished = finished end
            state = life.state
            new = write_life(life)
            local body = call('HGET', RUNS, id)
            if state == PENDING then
                urgent = is_first(ready) or urgent
                call('ZADD', WAITING, ready, id)
                call('SADD', TOUCHED, id)
                call('SADD', list_of(read_body(body)), id)
                again[keys[key * 2]] = (again[keys[key * 2]] or 0) + 1
            elseif life.flags % TOLD >= BOUND then
                release(id, read_body(body))
            end
        end
        if attempt then add_attempt(id, attempt) end
        applied[id] = new
        gone[#gone + 1] = id
        life_args[#life_args + 1] = id
        life_args[#life_args + 1] = new
        if state ~= PENDING then
            ended_ids[#ended_ids + 1] = id
            local entries = ended[state]
            if not entries then
                entries = {}
                ended[state] = entries
            end
            entries[#entries + 1] = finished
            entries[#entries + 1] = id
        end
        count(key, state, outcome, started, finished - started)
    end
end

-- Sums are kept by job: completed, failed, cancelled, lost, retried, microseconds, last start, last outcome.
local function add_counters()
    local jobs = {}
    for key in pairs(counters) do jobs[#jobs + 1] = key end
    for _, key in ipairs(jobs) do
        local job, added = keys[key * 2 - 1], counters[key]
        local kept = call('HGET', P .. 'statistics', job)
        if kept then
            kept = cmsgpack.unpack(kept)
            for slot = 1, 6 do added[slot] = added[slot] + kept[slot] end
            if kept[7] > added[7] then added[7], added[8] = kept[7], kept[8] end
        end
        call('HSET', P .. 'statistics', job, encode(added))
    end
end

if #gone > 0 then
    call('HSET', LIVES, unpack(life_args))
    call('ZREM', RUNNING_SET, unpack(gone))
    for state, entries in pairs(ended) do
        call('ZADD', P .. 'ended:' .. state, unpack(entries))
        count_ended(state, #entries / 2)
    end
    for queue, number in pairs(depths) do call('HINCRBY', P .. 'depths', 'r' .. queue, -number) end
    for queue, number in pairs(again) do call('HINCRBY', P .. 'depths', 'w' .. queue, number) end
    add_counters()
    tell_ended(ended_ids)
    if urgent or put_back > 0 then ring() end
end
return stale
