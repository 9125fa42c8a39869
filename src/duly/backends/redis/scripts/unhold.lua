--! use waiting ring
-- unhold: lets up to `limit` runs held under a key wait again, the most urgent first.
--
-- ARGV: the key, the limit. At most 500 a call. Returns how many; a repeat goes on with what is left.
local line = held_under(ARGV[1], math.min(tonumber(ARGV[2]), 500))
for i = 1, #line, 3 do
    -- Who is put back without having been placed is anybody's.
    if ARGV[1] == UNPLACED then relocate(line[i], call('HGET', RUNS, line[i]), nil) end
    unhold(line[i], ARGV[1], line[i + 2], line[i + 1])
end
if #line > 0 then ring() end
return #line / 3
