--! use now record
-- spare: no reaping until `now + lease`, if nobody has beaten for `silence`. Counts as a beat itself.
--
-- ARGV: now or '', silence and lease in microseconds. A store that has never been beaten began with its first call.
-- Returns 1 if an amnesty is in force.
local now = now_or(ARGV[1])
local beat = tonumber(call('HGET', META, 'beat') or call('HGET', META, 'began') or format('%.0f', now))
if now - beat > tonumber(ARGV[2]) then
    call('HSET', META, 'spared_until', format('%.0f', now + tonumber(ARGV[3])))
end
call('HSET', META, 'beat', format('%.0f', now))
return now < tonumber(call('HGET', META, 'spared_until') or '0') and 1 or 0
