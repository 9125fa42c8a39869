-- Instants are microseconds since 1970; a double holds them exactly until the year 2255.
-- `now_or(given)`: the instant that a test gave, else the server's clock, which stands still while a script runs.
local function now_or(given)
    if given ~= '' then return tonumber(given) end
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end
