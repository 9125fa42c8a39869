--! use clock delete_runs add_runs
-- backfill: adds runs for due instants that had none, and deletes the skipped runs that have their ids.
--
-- ARGV: now or '', then the runs as in `put` (three). At most 500 a call. A run is refused if its id is that of a run that was
-- not skipped. Returns the numbers of the refused runs, from 1. A repeat finds the runs that it added and refuses all.
local now, list = now_or(ARGV[1]), cmsgpack.unpack(ARGV[2])
local ids, gone = {}, {}
for i = 1, #list / 5 do ids[i] = list[i * 5 - 4] end
for i, text in ipairs(get_many(STATUSES, ids)) do
    if text and read_status(text).state == SKIPPED then gone[#gone + 1] = ids[i] end
end
if #gone > 0 then
    delete_records(gone)
    call_many('ZREM', P .. 'ended:' .. SKIPPED, gone)
end
local refused, numbers = add_runs(list, ARGV[3], cmsgpack.unpack(ARGV[4]), now), {}
for i in pairs(refused) do numbers[#numbers + 1] = i end
return numbers
