-- publish: adds entries to streams, each of which one node reads, and publishes a message to all nodes.
-- KEYS[1]: the prefix. ARGV: how many entries a stream may keep, the channel, the message ('' for none), then for each entry
-- the name of a stream, and the ids, the queue and the handler of its runs. A repeat publishes again, which does no harm.
for i = 4, #ARGV, 4 do
    redis.call('XADD', KEYS[1] .. ARGV[i], 'MAXLEN', '~', ARGV[1], '*',
        'runs', ARGV[i + 1], 'queue', ARGV[i + 2], 'handler', ARGV[i + 3])
end
if ARGV[3] ~= '' then redis.call('PUBLISH', KEYS[1] .. ARGV[2], ARGV[3]) end
return redis.status_reply('OK')
