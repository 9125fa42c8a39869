--! use clock waiting notify jobs
-- cancel_some: cancels some of the submitted waiting runs of a job that is about to be removed, if there are many, so that
-- removing it does not block the server.
--
-- ARGV: now or '', name, expected revision, how many at most. Does nothing if no more than that wait, or the job has
-- another revision. Returns how many were cancelled; a repeat continues with what is left.
local now, name, most = now_or(ARGV[1]), ARGV[2], tonumber(ARGV[4])
local text = call('HGET', JOBS, name)
if not text or read_job(text).revision ~= tonumber(ARGV[3]) then return 0 end
local key = P .. 'job:' .. name
if call('SCARD', key) <= most then return 0 end
local some = call('SRANDMEMBER', key, most)
table.sort(some)
for _, id in ipairs(some) do end_by_id(id, CANCELLED, 'job removed', now) end
if unheld > 0 then notify() end
return #some
