--! use clock logs
-- append_log: appends entries to a log, all or none, and deletes the oldest ones beyond a number.
--
-- ARGV: the log, the expected last number ('' for any), how many to keep ('' for all), then entries. Returns the last
-- number, or nil if it was not the expected one.
local last = last_number(ARGV[1])
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= last then return false end
append_to_log(ARGV[1], ARGV, 4, tonumber(ARGV[3]), (now_or('')))
return last + #ARGV - 3
