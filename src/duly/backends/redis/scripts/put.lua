--! use clock add_runs
-- put: adds runs; queued if ready and in no group, else pending.
--
-- ARGV: now or '', then the runs: see `batch_arguments` in codec.py, and `add_runs`. At most 1,000 a call.
-- In order, each wholly or not at all: a run is refused if its id exists, or if another run of its handler has its dedupe
-- key. A repeat adds nothing. Returns now, how many runs were ever added (0 if none is now), and a flat list for the refused
-- runs: number (from 1), id of the existing run, and its time of creation.
local now = now_or(ARGV[1])
local refused, created, total = add_runs(cmsgpack.unpack(ARGV[2]), ARGV[3], cmsgpack.unpack(ARGV[4]), now)
local answer = { now, total }
for i, id in pairs(refused) do
    local n, body = #answer, not created[id] and call('HGET', RUNS, id)
    answer[n + 1], answer[n + 2] = i, id
    answer[n + 3] = created[id] or body and unpack_from('>I8', body, CREATED_AT) or now
end
return answer
