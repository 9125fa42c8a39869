--! use layout
-- await_end: which of these runs have ended; if none has and all exist, their end will be published (`ended`).
--
-- ARGV: ids (msgpack). Returns the ids of those that have ended, and 1 if one does not exist.
local ids, ended, missing = cmsgpack.unpack(ARGV[1]), {}, 0
local bodies, statuses = get_many(RUNS, ids), get_many(STATUSES, ids)
for i, id in ipairs(ids) do
    if not bodies[i] then
        missing = 1
    elseif statuses[i] and byte(statuses[i], 2) >= COMPLETED then
        ended[#ended + 1] = id
    end
end
if #ended == 0 and missing == 0 then call_many('SADD', P .. 'awaited', ids) end
return { ended, missing }
