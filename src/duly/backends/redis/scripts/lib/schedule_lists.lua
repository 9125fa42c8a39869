--! use layout id_lists
-- Parts of `add_runs` that only some runs need.
--! const LONG_LIST 1024

-- Adds scheduled runs to the id lists of their jobs. From a list that has grown long, runs that no longer wait are removed.
local function add_to_schedule_lists(scheduled)
    local jobs, texts = {}, {}
    for job in pairs(scheduled) do jobs[#jobs + 1] = job end
    for i, text in ipairs(get_many(SCHEDULE_LISTS, jobs)) do
        if text and #text > LONG_LIST then
            local waiting, ids = nil, list_ids(text)
            local bodies, statuses = get_many(RUNS, ids), get_many(STATUSES, ids)
            for k, id in ipairs(ids) do
                if bodies[k] and not (statuses[k] and byte(statuses[k], 2) ~= PENDING) then
                    waiting = list_with(waiting, id)
                end
            end
            text = waiting
        end
        texts[i * 2 - 1] = jobs[i]
        texts[i * 2] = list_with(text, table.concat(scheduled[jobs[i]], ' '))
    end
    call_many('HSET', SCHEDULE_LISTS, texts)
end
