--! use job_index
-- handlers_of_jobs: the handlers of jobs, found by skipping from one to the next. Changes nothing.
--
-- ARGV: 'a' or 'r', the handler after which to begin ('' for all), the most to return. Returns the handlers; nil if the
-- index is incomplete.
if missing_names() ~= 0 then return false end
local kind, from, found = ARGV[1], ARGV[2] == '' and '' or ARGV[2] .. '\1', {}
local past = string.char(byte(kind) + 1)
while #found < tonumber(ARGV[3]) do
    local member = call('ZRANGEBYLEX', HANDLERS, '[' .. kind .. from, '(' .. past, 'LIMIT', 0, 1)[1]
    if not member then break end
    local handler = sub(member, 2, string.find(member, '\0', 1, true) - 1)
    found[#found + 1] = handler
    from = handler .. '\1'
end
return found
