--! use now
-- append: adds entries to an append-only log, all or none.
--
-- ARGV: the log, the expected last number ('' for any), then entries. Each is kept behind its time, 8 bytes.
-- Returns the last number, or nil if it was another than expected.
local key = KEYS[1] .. 'log:' .. ARGV[1]
local last = redis.call('LLEN', key)
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= last then return false end
local at = struct.pack('>i8', now_or(''))
for i = 3, #ARGV do redis.call('RPUSH', key, at .. ARGV[i]) end
return last + #ARGV - 2
