-- Entries that were looked after: out of the reader's list, and out of the stream.
-- KEYS[1]: the prefix. ARGV: group, then pairs of the name of a stream and the id of an entry. Unknown ones are ignored.
for i = 2, #ARGV, 2 do
  local stream = KEYS[1] .. ARGV[i]
  redis.pcall('XACK', stream, ARGV[1], ARGV[i + 1])
  redis.call('XDEL', stream, ARGV[i + 1])
end
return redis.status_reply('OK')
