-- Fences: each greater than all before, exact as a double, and never given twice even if the server forgot everything,
-- because none is smaller than the clock in microseconds. Handing one out takes longer than a microsecond, so they do
-- not run ahead of it. The clock is the server's own, whatever instant a test gives.

-- The number before the first of those that may be given now. `clock` is the server's, if it is known already.
local function last_fence(clock)
    if not clock then
        local time = redis.call('TIME')
        clock = time[1] * 1000000 + time[2]
    end
    return math.max(clock, tonumber(redis.call('HGET', KEYS[1] .. 'meta', 'fence') or '0'))
end

-- This was the last that was given.
local function keep_fence(fence)
    redis.call('HSET', KEYS[1] .. 'meta', 'fence', string.format('%.0f', fence))
end
