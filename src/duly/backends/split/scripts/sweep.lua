-- Ring again for runs that wait though they are ready, but not for one that was rung for by a sweep lately.
-- KEYS[1]: the prefix. ARGV: how many entries a stream may keep, seconds that are lately, then for each run the name of a
-- stream, its id, its queue and its handler. Returns how many were rung for.
local rung = 0
for i = 3, #ARGV, 4 do
  if redis.call('SET', KEYS[1] .. 'swept:' .. ARGV[i + 1], '', 'NX', 'EX', ARGV[2]) then
    redis.call('XADD', KEYS[1] .. ARGV[i], 'MAXLEN', '~', ARGV[1], '*',
      'runs', ARGV[i + 1], 'queue', ARGV[i + 2], 'handler', ARGV[i + 3])
    rung = rung + 1
  end
end
return rung
