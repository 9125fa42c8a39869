-- Notes that somebody goes to sleep who heard the bell last as `heard`, unless it was rung since. Returns it as it is, an
-- even number: if that differs from `heard`, nothing was noted. A repeat notes it once.
local function doze(heard)
    local bell = tonumber(redis.call('GET', KEYS[1] .. 'bell') or '0')
    local even = bell - bell % 2
    if even == heard and bell == even then redis.call('INCR', KEYS[1] .. 'bell') end
    return even
end
