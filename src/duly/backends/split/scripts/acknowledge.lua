-- acknowledge: deletes entries that were handled or handed over, and publishes a message to all nodes. The message goes
-- first: a node that is killed between the two has only sent it in vain.
-- KEYS[1]: the prefix. ARGV: group, the channel, the message ('' for none), then the name of a stream and the id of an entry
-- for each. Unknown ones are ignored.
if ARGV[3] ~= '' then redis.call('PUBLISH', KEYS[1] .. ARGV[2], ARGV[3]) end
for i = 4, #ARGV, 2 do
    local stream = KEYS[1] .. ARGV[i]
    redis.pcall('XACK', stream, ARGV[1], ARGV[i + 1])
    redis.call('XDEL', stream, ARGV[i + 1])
end
return redis.status_reply('OK')
