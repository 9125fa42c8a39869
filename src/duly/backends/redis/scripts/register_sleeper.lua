--! use register_sleeper
-- register_sleeper: registers that a session goes to sleep, unless there was a wake-up since it saw this count.
--
-- ARGV: the count that it saw last. Returns the count; if it differs, nothing was registered. A repeat changes nothing.
return register_sleeper(tonumber(ARGV[1]))
