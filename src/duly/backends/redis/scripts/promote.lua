--! use clock waiting_sets
--! lazy promotion
-- promote: pending → queued for runs that are ready, by ready time, then id, or what their group decides.
--
-- ARGV: now or '', how many at most. Treats no more than 1,000; a repeat continues with what is left.
-- Returns how many were treated, and the earliest ready time of what is still pending ('' if nothing is).
local now, count = now_or(ARGV[1]), 0
local first, ready = earliest_ready(now)
if #ready > 0 then
    count = lazy().promote(math.min(tonumber(ARGV[2]), 1000), now)
    first = earliest_ready(now)
end
return { count, first }
