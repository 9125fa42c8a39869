--! use job_counters
-- Plain completions: runs that succeeded at the first attempt and have neither group nor dedupe key. Nearly all settlements
-- are such, so they have a short path: one variadic command per index, and nothing is decoded.
--
-- Each is a row of four in a flat list: id, end (text, so that it is a score without being formatted), length of its new
-- status, number of its key. `texts` are the new statuses, concatenated. `sums` has three for each key: how many, the sum of
-- their durations, and the latest start.
--! const PLAIN 4
--! const FENCE_AT 5
--! const FENCE_TO 12
--! const START_AT 33
--! const SUCCEEDED 1

-- Stores plain completions if every run is running under its fence and has no flags; whether that is so. Otherwise nothing
-- is changed: the caller must treat them one by one (`full_rows`).
local function complete_all(plain, texts, sums, keys)
    local ids, status_args, ended, by_job, at = {}, {}, {}, {}, 1
    for k = PLAIN, #plain, PLAIN do ids[#ids + 1] = plain[k - 3] end
    for i, old in ipairs(call('HMGET', STATUSES, unpack(ids))) do
        local k = i * PLAIN
        local new = sub(texts, at, at + plain[k - 1] - 1)
        local state, flags
        if old then state, flags = byte(old, 2, 3) end
        if state ~= RUNNING or flags ~= 0 or sub(old, FENCE_AT, FENCE_TO) ~= sub(new, FENCE_AT, FENCE_TO) then
            return false
        end
        status_args[i * 2 - 1], status_args[i * 2] = ids[i], new
        ended[i * 2 - 1], ended[i * 2] = plain[k - 2], ids[i]
        at = at + #new
    end
    for i, id in ipairs(ids) do
        local job = keys[plain[i * PLAIN] * 2 - 1]
        local some = by_job[job]
        if not some then
            some = {}
            by_job[job] = some
        end
        some[#some + 1] = id
    end
    call('HSET', STATUSES, unpack(status_args))
    call('ZREM', RUNNING_SET, unpack(ids))
    call('ZADD', P .. 'ended:' .. COMPLETED, unpack(ended))
    call('HINCRBY', P .. 'totals', COMPLETED, #ids)
    local counters = {}
    for key = 1, #sums / 3 do -- plain completions have the first keys
        local count, micros, started = sums[key * 3 - 2], sums[key * 3 - 1], sums[key * 3]
        local job, queue = keys[key * 2 - 1], keys[key * 2]
        local counter = counters[job] or { 0, 0, 0, 0, 0, 0, 0, SUCCEEDED }
        counter[1], counter[6], counter[7] = counter[1] + count, counter[6] + micros, math.max(counter[7], started)
        counters[job] = counter
        call('HINCRBY', P .. 'depths', 'r' .. queue, -count)
    end
    store_counters(counters, by_job)
    return true, ids
end

-- The same completions as rows of `settle`, appended to `rows`.
local function full_rows(plain, texts, rows)
    local at = 1
    for k = PLAIN, #plain, PLAIN do
        local n = #rows
        local started, _, finished = unpack_from('>i8Bi8', texts, at + START_AT - 1)
        rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4], rows[n + 5] = plain[k - 3], plain[k - 1], 0, plain[k], SUCCEEDED
        rows[n + 6], rows[n + 7], rows[n + 8], rows[n + 9] = started, finished, 0, ''
        at = at + plain[k - 1]
    end
end
