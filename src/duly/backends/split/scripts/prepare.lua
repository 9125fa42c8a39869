-- prepare: creates the streams and the consumer group where they are missing. A new group begins with what is already in
-- the stream.
-- KEYS[1]: the prefix. ARGV: group, then the names of streams.
for i = 2, #ARGV do
    local created = redis.pcall('XGROUP', 'CREATE', KEYS[1] .. ARGV[i], ARGV[1], '0', 'MKSTREAM')
    if created.err and not string.find(created.err, 'BUSYGROUP', 1, true) then return created end
end
return redis.status_reply('OK')
