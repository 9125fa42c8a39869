-- Make the streams and the group of their readers where they are missing; what is there stays as it is.
-- KEYS[1]: the prefix. ARGV: group, then the names of streams. A new group begins with what is already in the stream.
for i = 2, #ARGV do
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[1] .. ARGV[i], ARGV[1], '0', 'MKSTREAM')
  if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
    return made
  end
end
return redis.status_reply('OK')
