--! use now promoting
-- promote: pending → queued for what is ready, by ready time, then id, or what its group says.
--
-- ARGV: now or '', how many to look at. Looks at no more than 1,000; a repeat goes on with what is left.
-- Returns how many were looked at, and the earliest ready time of what is still pending ('' if nothing is).
local looked_at = promote(math.min(tonumber(ARGV[2]), 1000), now_or(ARGV[1]))
return { looked_at, next_due() }
