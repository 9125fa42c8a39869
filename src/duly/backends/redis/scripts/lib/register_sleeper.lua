-- Registers that a session goes to sleep, unless there was a wake-up since it saw the count `seen`. Returns the count, an
-- even number; if it differs from `seen`, nothing was registered. Repeating the call changes nothing.
local function register_sleeper(seen)
    local count = tonumber(redis.call('GET', KEYS[1] .. 'bell') or '0')
    local even = count - count % 2
    if even == seen and count == even then redis.call('INCR', KEYS[1] .. 'bell') end
    return even
end
