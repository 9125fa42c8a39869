--! use now adding
-- put: adds runs; queued if ready and in no group, else pending.
--
-- ARGV: now or '', the flat list of runs (msgpack; see `add_runs`), their bodies put together, ends and holds by id (msgpack).
-- In order and whole: a run whose id exists, or whose dedupe key an unfinished run of its handler has, is not added.
-- A repeat adds nothing. Returns a flat list of number (from 1) and id for those that were not added.
-- At most 1,000 runs a call.
local _, refused = add_runs(cmsgpack.unpack(ARGV[2]), ARGV[3], cmsgpack.unpack(ARGV[4]), (now_or(ARGV[1])))
local answer = {}
for i, id in pairs(refused) do
    answer[#answer + 1] = i
    answer[#answer + 1] = id
end
return answer
