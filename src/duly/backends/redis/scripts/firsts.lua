--! use record
-- firsts: the earliest ready time by job in a slice of one line of waiting runs. Changes nothing.
--
-- ARGV: the line, where to begin (from 0), how many to look at (at most 2,000).
-- Returns job and time (flat), and how many were looked at.
local from, count = tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), 2000)
local entries = call('ZRANGE', P .. ARGV[1], from, from + count - 1, 'WITHSCORES')
if #entries == 0 then return { {}, 0 } end
local ids, found, seen = {}, {}, {}
for i = 1, #entries, 2 do ids[#ids + 1] = entries[i] end
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    if body then
        local _, handler, job = decode_some(body, 2, HANDLER_AT)
        job = job or handler
        if not seen[job] then
            seen[job] = true
            found[#found + 1] = job
            found[#found + 1] = entries[i * 2]
        end
    end
end
return { found, #ids }
