--! use delete_runs
-- purge: deletes runs of a final state, the earliest ended first: those that ended before `before`, and those beyond the
-- newest `keep`.
--
-- ARGV: state, before ('' for none), keep ('' for none), limit. At most 500 a call. Returns how many.
local key = P .. 'ended:' .. ARGV[1]
local before, keep = tonumber(ARGV[2]), tonumber(ARGV[3])
local oldest = call('ZRANGE', key, 0, math.min(tonumber(ARGV[4]), 500) - 1, 'WITHSCORES')
local left, gone = call('ZCARD', key), {}
for i = 1, #oldest, 2 do
    local too_old = before and tonumber(oldest[i + 1]) < before
    if not too_old and not (keep and left > keep) then break end
    gone[#gone + 1] = oldest[i]
    left = left - 1
end
if #gone > 0 then
    delete_records(gone)
    call('ZREM', key, unpack(gone))
end
return #gone
