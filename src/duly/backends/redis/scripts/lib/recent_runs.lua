--! use layout
-- The newest ended runs by job: the list `recent:<job>`, the latest end last. The field `recent` of `meta` says since when
-- every end is in there. A run that was redriven may be in there twice; one that was purged stays as long as an earlier one
-- does.
--! const MOST_RECENT 200

local function add_recent(job, ids)
    call('RPUSH', P .. 'recent:' .. job, unpack(ids, math.max(1, #ids - MOST_RECENT + 1)))
    call('LTRIM', P .. 'recent:' .. job, -MOST_RECENT, -1)
end

-- Removes the first runs of a list as far as they have been deleted.
local function drop_deleted(job)
    local key = P .. 'recent:' .. job
    while true do
        local id = call('LINDEX', key, 0)
        if not id or call('HEXISTS', RUNS, id) == 1 then return end
        call('LPOP', key)
    end
end
