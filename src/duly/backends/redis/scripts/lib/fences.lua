-- Fences: each is greater than all before and exact as a double. None is given out twice even if the server lost
-- everything, because none is smaller than the clock in microseconds; giving one out takes longer than a microsecond,
-- so they do not run ahead of the clock. The clock is the server's, whatever instant a test passes.

-- The number before the next fence. `clock` is the server's clock, if the caller has read it.
local function last_fence(clock)
    if not clock then
        local time = redis.call('TIME')
        clock = time[1] * 1000000 + time[2]
    end
    return math.max(clock, tonumber(redis.call('HGET', KEYS[1] .. 'meta', 'fence') or '0'))
end

-- Stores the last fence that was given out.
local function store_fence(fence)
    redis.call('HSET', KEYS[1] .. 'meta', 'fence', string.format('%.0f', fence))
end
