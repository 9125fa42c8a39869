-- Instants are microseconds since 1970; a double holds them exactly until the year 2255.
-- `now_or(given)`: the instant that a test passes, otherwise the server's clock, which stands still while a script runs.
-- A negative instant is what the caller expects the server's clock to show. If the two differ by more than a second, one
-- of them has jumped: then the expected time counts, until the caller accepts the server's (`StoreClock`). Without a
-- test's instant, the second result is the server's clock.
--! const TOLERANCE 1000000
local function now_or(given)
    local expected = given ~= '' and tonumber(given) or nil
    if expected and expected >= 0 then return expected end
    local time = redis.call('TIME')
    local server = time[1] * 1000000 + time[2]
    if expected and math.abs(server + expected) > TOLERANCE then return -expected, server end
    return server, server
end
