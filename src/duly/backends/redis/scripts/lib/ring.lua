-- Wakes whoever waits for work. `bell` is twice the number of rings, and odd while somebody sleeps: who goes to sleep makes
-- it odd (`doze`), the next ring makes it even again and is published. Nothing is said to those who are awake.
local function ring()
    local bell = redis.call('INCRBY', KEYS[1] .. 'bell', 2)
    if bell % 2 == 1 then
        redis.call('PUBLISH', KEYS[1] .. 'work', redis.call('DECR', KEYS[1] .. 'bell'))
    end
end
