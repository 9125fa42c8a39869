-- Entries that were looked after, or passed on: out of the reader's list, and out of the stream; and a word to everybody.
-- KEYS[1]: the prefix. ARGV: group, the channel, the word (empty: none), then pairs of the name of a stream and the id of
-- an entry. Unknown ones are ignored. The word goes out first: whoever is killed after it has said it once too often.
if ARGV[3] ~= '' then
  redis.call('PUBLISH', KEYS[1] .. ARGV[2], ARGV[3])
end
for i = 4, #ARGV, 2 do
  local stream = KEYS[1] .. ARGV[i]
  redis.pcall('XACK', stream, ARGV[1], ARGV[i + 1])
  redis.call('XDEL', stream, ARGV[i + 1])
end
return redis.status_reply('OK')
