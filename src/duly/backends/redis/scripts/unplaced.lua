--! use now record
-- unplaced: at least the first runs that are yet to be placed: ready ones by priority, then the others. Changes nothing.
--
-- ARGV: now or '', how many, and priority, ready time and id of the run after which to begin ('' for the first).
-- Returns now, and priority, id and ready time (flat), in no order.
local now, limit, found = now_or(ARGV[1]), tonumber(ARGV[2]), {}
if call('HEXISTS', P .. 'holds', UNPLACED) == 0 then return { now, found } end
local priority, ready, id = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local among_due = not ready or ready <= now

-- The runs of one priority from a ready time on; `past` is where those after that run begin.
local function add(level, from, to, past)
    local key = P .. 'held:' .. level .. ':' .. UNPLACED
    local some = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', past, limit)
    for i = 1, #some, 2 do
        local n = #found
        found[n + 1], found[n + 2], found[n + 3] = level, some[i], some[i + 1]
    end
end

-- How many of those with the same ready time as the run after which to begin come before it, and itself.
local function passed(level)
    local number, key = 0, P .. 'held:' .. level .. ':' .. UNPLACED
    for _, each in ipairs(call('ZRANGEBYSCORE', key, ready, ready)) do
        if each <= id then number = number + 1 end
    end
    return number
end

for level = 9, 0, -1 do
    if not ready or (among_due and level < priority) then
        add(level, '-inf', now, 0)
    elseif among_due and level == priority then
        add(level, ready, now, passed(level))
    end
    if among_due then
        add(level, '(' .. format('%.0f', now), '+inf', 0)
    else
        add(level, ready, '+inf', passed(level))
    end
end
return { now, found }
