--! use clock read_runs
-- held_runs: the first runs under a hold: ready ones by priority, ready time and id, then the others by ready time and id.
-- Changes nothing.
--
-- ARGV: now or '', how many (at most 1,000), priority, ready time and id of the run after which to begin ('' for the
-- first), and the hold. Returns now, ids, and what the function `read_runs` returns for them.
local now, limit, hold, found = now_or(ARGV[1]), tonumber(ARGV[2]), ARGV[6], {}
if call('HEXISTS', P .. 'holds', hold) == 0 then return { now, {}, {} } end
local after_priority, after_ready, after_id = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local after_is_due = not after_ready or after_ready <= now

-- Adds the runs of one priority in a range of ready times; `skip` is how many of them to leave out.
local function add(priority, from, to, skip)
    local key = P .. 'held:' .. priority .. ':' .. hold
    local some = call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', skip, limit)
    for i = 1, #some, 2 do
        local ready = tonumber(some[i + 1])
        found[#found + 1] = { ready <= now and -priority or 1, ready, some[i] }
    end
end

-- How many runs with the ready time of the run after which to begin are not after it.
local function count_passed(priority)
    local count, key = 0, P .. 'held:' .. priority .. ':' .. hold
    for _, id in ipairs(call('ZRANGEBYSCORE', key, after_ready, after_ready)) do
        if id <= after_id then count = count + 1 end
    end
    return count
end

for priority = 9, 0, -1 do
    if not after_ready or (after_is_due and priority < after_priority) then
        add(priority, '-inf', now, 0)
    elseif after_is_due and priority == after_priority then
        add(priority, after_ready, now, count_passed(priority))
    end
    if after_is_due then
        add(priority, '(' .. format('%.0f', now), '+inf', 0)
    else
        add(priority, after_ready, '+inf', count_passed(priority))
    end
end
table.sort(found, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    if a[2] ~= b[2] then return a[2] < b[2] end
    return a[3] < b[3]
end)
local ids = {}
for i = 1, math.min(limit, #found) do ids[i] = found[i][3] end
return { now, ids, read_runs(ids) }
