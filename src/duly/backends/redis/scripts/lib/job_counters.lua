--! use layout recent_runs
-- Counters by job. Settlements of a few jobs are counted at once. Those of many jobs are appended as they came to the
-- list `tallies` (rows, keys and states of one call) and counted later: when counters are read, runs are planned, or
-- when the list is long. One HSET of many counters per settlement would cost more than the settlement. The bound is in
-- rows, about six microseconds each, because a reader of counters waits for them.
--! const COUNTERS '>i8i8i8i8i8i8i8Bxxxxxxxx'
--! const FEW_JOBS 8
--! const MAX_PENDING_ROWS 20000

-- Adds rows of `settle` to `counters`, by job: completed, failed, cancelled, lost, retried, microseconds, last start,
-- last outcome. `states` has a character for each row: its new state, or '-' if it was not applied. `ended` receives the
-- ids of ended runs by job.
local function count_rows(rows, keys, states, counters, ended)
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
            if state ~= PENDING then
                local ids = ended[job]
                if not ids then
                    ids = {}
                    ended[job] = ids
                end
                ids[#ids + 1] = rows[k - 8]
            end
            local slot = state == PENDING and 5 or state - 2
            counter[slot] = counter[slot] + 1
            counter[6] = counter[6] + finished - started
            if started >= counter[7] then counter[7], counter[8] = started, outcome end
        end
    end
end

-- Adds counters to the stored ones. The padding makes them longer than 64 bytes, for the reason of `LONG_NAME`.
local function store_counters(counters, ended)
    local jobs, packed = {}, {}
    for job, ids in pairs(ended) do add_recent(job, ids) end
    for job in pairs(counters) do jobs[#jobs + 1] = job end
    if #jobs == 0 then return end
    for i, text in ipairs(get_many(P .. 'statistics', jobs)) do
        local counter = counters[jobs[i]]
        if text then
            local stored = { unpack_from(COUNTERS, text) }
            for k = 1, 6 do counter[k] = counter[k] + stored[k] end
            if stored[7] > counter[7] then counter[7], counter[8] = stored[7], stored[8] end
        end
        packed[i * 2 - 1], packed[i * 2] = jobs[i], pack(COUNTERS, unpack(counter))
    end
    call_many('HSET', P .. 'statistics', packed)
end

-- Counts pending settlements, until at least `most` rows are counted.
local function add_pending_counters(most)
    local counters, ended, count = {}, {}, 0
    while count < most do
        local settled = call('LPOP', P .. 'tallies', 3)
        if not settled then break end
        count_rows(cmsgpack.unpack(settled[1]), cmsgpack.unpack(settled[2]), settled[3], counters, ended)
        count = count + #settled[3]
    end
    store_counters(counters, ended)
end

-- Counts the rows of one settlement, now or later.
local function count_settled(rows, keys, states, rows_text, keys_text)
    if #keys / 2 <= FEW_JOBS then
        local counters, ended = {}, {}
        count_rows(rows, keys, states, counters, ended)
        store_counters(counters, ended)
    elseif call('RPUSH', P .. 'tallies', rows_text, keys_text, states) / 3 * #states > MAX_PENDING_ROWS then
        add_pending_counters(#states)
    end
end
