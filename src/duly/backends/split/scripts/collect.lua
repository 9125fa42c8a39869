-- Take over entries that a reader took and did not look after in time: it is dead, or too busy. Readers that have been
-- silent for long and have nothing are forgotten.
-- KEYS[1]: the prefix. ARGV: group, reader, how long is too long (ms), how many at most of a stream, after how long a
-- silent reader is forgotten (ms), then the names of streams. Returns for each entry the name of its stream, its id and
-- its fields.
local found = {}
for i = 6, #ARGV do
  local stream = KEYS[1] .. ARGV[i]
  local taken = redis.pcall('XAUTOCLAIM', stream, ARGV[1], ARGV[2], ARGV[3], '0', 'COUNT', ARGV[4])
  if taken.err then
    return taken
  end
  for n = 1, #taken[2] do
    local entry = taken[2][n] -- older servers tell of one that is gone
    if entry and entry[2] then
      found[#found + 1] = { ARGV[i], entry[1], entry[2] }
    end
  end
  for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', stream, ARGV[1])) do
    local reader = {}
    for n = 1, #fields, 2 do
      reader[fields[n]] = fields[n + 1]
    end
    if reader.pending == 0 and reader.idle > tonumber(ARGV[5]) then
      redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], reader.name)
    end
  end
end
return found
