--! use record
-- line: a slice of one line of waiting runs, by ready time, then id. Changes nothing.
--
-- ARGV: the line, where to begin (from 0), how many to look at (at most 2,000), a job ('' for all).
-- Returns id and job of each (flat) in order, and how many were looked at.
local from, count = tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), 2000)
local ids, found = call('ZRANGE', P .. ARGV[1], from, from + count - 1), {}
if #ids == 0 then return { found, 0 } end
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    if body then
        local _, handler, job = decode_some(body, 2, HANDLER_AT)
        job = job or handler
        if ARGV[4] == '' or job == ARGV[4] then
            found[#found + 1] = ids[i]
            found[#found + 1] = job
        end
    end
end
return { found, #ids }
