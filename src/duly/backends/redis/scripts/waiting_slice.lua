--! use layout
-- waiting_slice: a slice of one sorted set of waiting runs, by ready time, then id. Changes nothing.
--
-- ARGV: the key without the prefix, where to begin (from 0), how many to read (at most 2,000), a job ('' for all).
-- Returns id, ready time and job of each (flat) in order, and how many were read.
local from, count = tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), 2000)
local members = call('ZRANGE', P .. ARGV[1], from, from + count - 1, 'WITHSCORES')
if #members == 0 then return { {}, 0 } end
local ids, found = {}, {}
for i = 1, #members, 2 do ids[#ids + 1] = members[i] end
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    if body then
        local _, handler, job = decode_some(body, 2, HANDLER_AT)
        job = job or handler
        if ARGV[4] == '' or job == ARGV[4] then
            local n = #found
            found[n + 1], found[n + 2], found[n + 3] = ids[i], members[i * 2], job
        end
    end
end
return { found, #ids }
