--! use layout
-- The sets of pending runs: `waiting:<priority>`, by ready time; `levels` lists the non-empty ones.
local WAITING_SETS = P .. 'levels'

-- The earliest ready time of all pending runs ('' if there are none), and the names of the sets with runs that are ready
-- by `now`. An empty set is removed from the list.
local function earliest_ready(now)
    local earliest, text, ready = math.huge, '', {}
    for _, name in ipairs(call('SMEMBERS', WAITING_SETS)) do
        local first = call('ZRANGE', WAITING .. name, 0, 0, 'WITHSCORES')[2]
        if first then
            local time = tonumber(first)
            if time < earliest then earliest, text = time, first end
            if time <= now then ready[#ready + 1] = name end
        else
            call('SREM', WAITING_SETS, name)
        end
    end
    return text, ready
end
