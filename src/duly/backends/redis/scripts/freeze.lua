--! use layout
-- freeze: pauses all queues and makes the epochs of all planners old. A repeat makes them older.
call('SADD', P .. 'paused', '*')
for _, shard in ipairs(call('HKEYS', P .. 'epochs')) do
    local epoch = tonumber(call('HGET', P .. 'epochs', shard)) + 1
    call('HSET', P .. 'epochs', shard, format('%.0f', epoch))
end
