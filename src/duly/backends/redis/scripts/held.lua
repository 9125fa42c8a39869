--! use now looking
-- held: the first runs that are held under a key: ready ones by priority, ready time and id, then the others by ready time
-- and id. Changes nothing.
--
-- ARGV: now or '', how many (at most 1,000), priority, ready time and id of the run after which to begin ('' for the
-- first), and the key. Returns now, ids, and what `look_at` says of them.
local now, limit, hold, found = now_or(ARGV[1]), tonumber(ARGV[2]), ARGV[6], {}
if call('HEXISTS', P .. 'holds', hold) == 0 then return { now, {}, {} } end
local priority, ready, id = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local among_due = not ready or ready <= now

-- The runs of one priority from a ready time on; `past` is where those after that run begin.
local function add(level, from, to, past)
    local key = P .. 'held:' .. level .. ':' .. hold
    local some = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', past, limit)
    for i = 1, #some, 2 do
        local at = tonumber(some[i + 1])
        found[#found + 1] = { at <= now and -level or 1, at, some[i] }
    end
end

-- How many of those with the same ready time as the run after which to begin come before it, and itself.
local function passed(level)
    local number, key = 0, P .. 'held:' .. level .. ':' .. hold
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
table.sort(found, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    if a[2] ~= b[2] then return a[2] < b[2] end
    return a[3] < b[3]
end)
local ids = {}
for i = 1, math.min(limit, #found) do ids[i] = found[i][3] end
return { now, ids, look_at(ids) }
