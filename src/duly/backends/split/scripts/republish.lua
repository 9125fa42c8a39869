-- republish: adds entries for runs that wait although they are ready, except for those it added an entry for lately.
-- KEYS[1]: the prefix. ARGV: how many entries a stream may keep, how many seconds are lately, then for each run the name of
-- a stream, its id, its queue and its handler. Returns how many entries were added.
local count = 0
for i = 3, #ARGV, 4 do
    if redis.call('SET', KEYS[1] .. 'swept:' .. ARGV[i + 1], '', 'NX', 'EX', ARGV[2]) then
        redis.call('XADD', KEYS[1] .. ARGV[i], 'MAXLEN', '~', ARGV[1], '*',
            'runs', ARGV[i + 1], 'queue', ARGV[i + 2], 'handler', ARGV[i + 3])
        count = count + 1
    end
end
return count
