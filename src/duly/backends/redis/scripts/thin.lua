--! use now waiting ring jobs
-- thin: cancels some of the submitted runs that wait for a job which is about to be removed, if there are many: so that
-- removing it does not hold the server up.
--
-- ARGV: now or '', name, expected revision, how many at most. Nothing happens if no more than that wait, or the job has
-- another revision. Returns how many were cancelled; a repeat goes on with what is left.
local now, name, most = now_or(ARGV[1]), ARGV[2], tonumber(ARGV[4])
local text = call('HGET', JOBS, name)
if not text or read_job(text).revision ~= tonumber(ARGV[3]) then return 0 end
local key = P .. 'job:' .. name
if call('SCARD', key) <= most then return 0 end
local some = call('SRANDMEMBER', key, most)
table.sort(some)
for _, id in ipairs(some) do
    local run, life = load_run(id)
    end_waiting(id, run, life, CANCELLED, 'job removed', now)
end
if put_back > 0 then ring() end
return #some
