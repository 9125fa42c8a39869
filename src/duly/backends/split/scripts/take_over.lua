-- take_over: takes over entries that another node read and did not handle in time, because it is dead or too busy. Deletes
-- consumers that have been idle for long and have no entries.
-- KEYS[1]: the prefix. ARGV: group, consumer, how long is too long (ms), how many at most per stream, after how long an idle
-- consumer is deleted (ms), then the names of streams. Returns for each entry the name of its stream, its id and its fields.
local found = {}
for i = 6, #ARGV do
    local stream = KEYS[1] .. ARGV[i]
    local taken = redis.pcall('XAUTOCLAIM', stream, ARGV[1], ARGV[2], ARGV[3], '0', 'COUNT', ARGV[4])
    if taken.err then return taken end
    for n = 1, #taken[2] do
        local entry = taken[2][n] -- older servers return deleted entries, too
        if entry and entry[2] then found[#found + 1] = { ARGV[i], entry[1], entry[2] } end
    end
    for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', stream, ARGV[1])) do
        local consumer = {}
        for n = 1, #fields, 2 do consumer[fields[n]] = fields[n + 1] end
        if consumer.pending == 0 and consumer.idle > tonumber(ARGV[5]) then
            redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], consumer.name)
        end
    end
end
return found
