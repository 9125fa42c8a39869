--! use record
-- Counters by job. What is settled for a few jobs is added up at once; what is settled for many is noted as it came, rows,
-- keys and states of one call in turn (`tallies`), and added up later: when somebody asks, when runs are planned, or when
-- too much has gathered.
--! const SUMS '>i8i8i8i8i8i8i8Bxxxxxxxx'
--! const FEW_JOBS 8
--! const MOST_NOTES 900

-- Adds rows as `settle` gets them to `counters`, by job: completed, failed, cancelled, lost, retried, microseconds, last
-- start, last outcome. `states` has a sign for each row: the state that it came to, or '-' if it was not applied.
local function count_rows(rows, keys, states, counters)
    for i = 1, #states do
        local k, state = i * 9, byte(states, i) - 48
        local outcome, started, finished = rows[k - 4], rows[k - 3], rows[k - 2]
        if state >= PENDING and outcome ~= 0 then
            local job = keys[rows[k - 5] * 2 - 1]
            local counter = counters[job]
            if not counter then
                counter = { 0, 0, 0, 0, 0, 0, 0, 0 }
                counters[job] = counter
            end
            local slot = state == PENDING and 5 or state - 2
            counter[slot] = counter[slot] + 1
            counter[6] = counter[6] + finished - started
            if started >= counter[7] then counter[7], counter[8] = started, outcome end
        end
    end
end

-- Adds counters to those that are kept. They are long enough not to be kept as one list (see KEEL).
local function keep_counters(counters)
    local jobs, sums = {}, {}
    for job in pairs(counters) do jobs[#jobs + 1] = job end
    if #jobs == 0 then return end
    for i, text in ipairs(get_many(P .. 'statistics', jobs)) do
        local a, b, c, d, e, f, last, outcome = unpack(counters[jobs[i]])
        if text then
            local ka, kb, kc, kd, ke, kf, kept_last, kept_outcome = unpack_from(SUMS, text)
            a, b, c, d, e, f = a + ka, b + kb, c + kc, d + kd, e + ke, f + kf
            if kept_last > last then last, outcome = kept_last, kept_outcome end
        end
        sums[i * 2 - 1], sums[i * 2] = jobs[i], pack(SUMS, a, b, c, d, e, f, last, outcome)
    end
    call_many('HSET', P .. 'statistics', sums)
end

-- Adds up what was noted, until so many rows have been.
local function add_up(most)
    local counters, seen = {}, 0
    while seen < most do
        local note = call('LPOP', P .. 'tallies', 3)
        if not note then break end
        count_rows(cmsgpack.unpack(note[1]), cmsgpack.unpack(note[2]), note[3], counters)
        seen = seen + #note[3]
    end
    keep_counters(counters)
end

-- Counts the rows of one settlement, now or later.
local function tally(rows, keys, states, rows_text, keys_text)
    if #keys / 2 <= FEW_JOBS then
        local counters = {}
        count_rows(rows, keys, states, counters)
        keep_counters(counters)
    elseif call('RPUSH', P .. 'tallies', rows_text, keys_text, states) > MOST_NOTES then
        add_up(#states)
    end
end
