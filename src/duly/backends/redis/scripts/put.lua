--! use now adding
-- put: adds runs; queued if ready and in no group, else pending.
--
-- ARGV: now or '', the flat list of runs (msgpack; see `add_runs`), their bodies put together, ends and holds by id (msgpack).
-- In order and whole: a run whose id exists, or whose dedupe key another run of its handler has, is not added.
-- A repeat adds nothing. Returns now, and a flat list of number (from 1), id and time of creation of what stands in the way
-- of those that were not added. At most 1,000 runs a call.
local now = now_or(ARGV[1])
local _, refused, created = add_runs(cmsgpack.unpack(ARGV[2]), ARGV[3], cmsgpack.unpack(ARGV[4]), now)
local answer = { now }
for i, id in pairs(refused) do
    local n, body = #answer, not created[id] and call('HGET', RUNS, id)
    answer[n + 1], answer[n + 2] = i, id
    answer[n + 3] = created[id] or body and unpack_from('>I8', body, CREATED_AT) or now
end
return answer
