--! use record
-- await: which of these runs are final; if none is and all exist, their end will be told (`ended`).
--
-- ARGV: ids (msgpack). Returns the ids that are final, and 1 if one is gone.
local ids, final, gone = cmsgpack.unpack(ARGV[1]), {}, 0
local bodies, lives = get_many(RUNS, ids), get_many(LIVES, ids)
for i, id in ipairs(ids) do
    if not bodies[i] then
        gone = 1
    elseif lives[i] and byte(lives[i], 2) >= COMPLETED then
        final[#final + 1] = id
    end
end
if #final == 0 and gone == 0 then call_many('SADD', P .. 'awaited', ids) end
return { final, gone }
