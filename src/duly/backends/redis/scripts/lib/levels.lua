--! use record
-- Pending runs wait by priority: `waiting:<priority>` has them by ready time, `levels` lists the priorities that have any.
local LEVELS = P .. 'levels'

-- The earliest ready time of all that wait, '' if nothing does, and the levels that have runs ready by `now`. A level
-- that has none left is struck from the list.
local function look_ahead(now)
    local earliest, text, ready = math.huge, '', {}
    for _, level in ipairs(call('SMEMBERS', LEVELS)) do
        local first = call('ZRANGE', WAITING .. level, 0, 0, 'WITHSCORES')[2]
        if first then
            local time = tonumber(first)
            if time < earliest then earliest, text = time, first end
            if time <= now then ready[#ready + 1] = level end
        else
            call('SREM', LEVELS, level)
        end
    end
    return text, ready
end
