--! use clock
--! const SLICE 1000
-- append_log: appends entries to a log, all or none, and deletes the oldest ones beyond a number.
--
-- ARGV: the log, the expected last number ('' for any), how many to keep ('' for all), then entries. Each is stored behind
-- its time, 8 bytes. `gone` counts by log the deleted ones. Returns the last number, or nil if it was not the expected one.
local key, gone = KEYS[1] .. 'log:' .. ARGV[1], KEYS[1] .. 'gone'
local last = (tonumber(redis.call('HGET', gone, ARGV[1])) or 0) + redis.call('LLEN', key)
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= last then return false end
local at = struct.pack('>i8', (now_or('')))
for first = 4, #ARGV, SLICE do
    local part = {}
    for i = first, math.min(#ARGV, first + SLICE - 1) do part[#part + 1] = at .. ARGV[i] end
    redis.call('RPUSH', key, unpack(part)) -- one call for many: a call for each costs five times as much
end
if ARGV[3] ~= '' then
    local over = redis.call('LLEN', key) - tonumber(ARGV[3])
    if over > 0 then
        redis.call('LTRIM', key, over, -1)
        redis.call('HINCRBY', gone, ARGV[1], over)
    end
end
return last + #ARGV - 3
