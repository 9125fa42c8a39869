--! use layout
-- The newest ended runs by job: the list `recent:<job>`, the latest end last. The field `recent` of `meta` says since when
-- every end is in there. A run that was redriven may be in there twice; one that was purged stays until it is pushed out.
--! const MOST_RECENT 200

local function add_recent(job, ids)
    call('RPUSH', P .. 'recent:' .. job, unpack(ids, math.max(1, #ids - MOST_RECENT + 1)))
    call('LTRIM', P .. 'recent:' .. job, -MOST_RECENT, -1)
end
