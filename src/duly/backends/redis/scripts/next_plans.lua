--! use jobs
-- next_plans: the jobs of all shards that are planned first. Changes nothing.
--
-- ARGV: the most to return for a shard. Returns names and times (flat) for each shard, in order. Shards that no index lists,
-- because a process of 0.1.0 has added them, are found by their epochs.
local shards = { main = true }
for _, shard in ipairs(call('SMEMBERS', P .. 'shards')) do shards[shard] = true end
for _, shard in ipairs(call('HKEYS', P .. 'epochs')) do shards[shard] = true end
local plans = {}
for shard in pairs(shards) do
    plans[#plans + 1] = call('ZRANGE', P .. 'due:' .. shard, 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
end
return plans
