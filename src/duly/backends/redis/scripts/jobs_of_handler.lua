--! use job_index
-- jobs_of_handler: a slice of the jobs of a handler by name. Changes nothing.
--
-- ARGV: 'a' or 'r' and the handler, the name after which to begin, the most to return.
-- Returns names and records; nil if the index is incomplete. The record may differ, if a process of 0.1.0 has changed it.
if missing_names() ~= 0 then return false end
local place, limit = ARGV[1], math.min(tonumber(ARGV[3]), 1000)
local names = call('ZRANGEBYLEX', HANDLERS, '(' .. place .. '\0' .. ARGV[2], '(' .. place .. '\1', 'LIMIT', 0, limit)
if #names == 0 then return { {}, {} } end
for i, member in ipairs(names) do names[i] = sub(member, #place + 2) end
return { names, call('HMGET', JOBS, unpack(names)) }
