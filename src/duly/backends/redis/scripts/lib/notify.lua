-- Wakes the sessions that sleep. The key `bell` is twice the number of wake-ups, and odd while a session sleeps: one
-- that goes to sleep makes it odd (`register_sleeper`); the next wake-up makes it even and is published. So nothing is
-- published while no session sleeps.
local function notify()
    local count = redis.call('INCRBY', KEYS[1] .. 'bell', 2)
    if count % 2 == 1 then
        redis.call('PUBLISH', KEYS[1] .. 'work', redis.call('DECR', KEYS[1] .. 'bell'))
    end
end
