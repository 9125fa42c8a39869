--! use clock waiting notify
-- cancel: ends waiting runs, held ones included; asks the workers of running ones to cancel them.
--
-- ARGV: now or '', ids (msgpack), whether there is a reason ('1'), the reason. At most 500 a call.
-- Returns for each: 0 done, 1 requested, 2 too late, 3 unknown. A repeat finds what the first call left.
local now, reason = now_or(ARGV[1]), ARGV[3] == '1' and ARGV[4] or nil
local replies, requested = {}, false
for i, id in ipairs(cmsgpack.unpack(ARGV[2])) do
    local run, status = load_run(id)
    if not run then
        replies[i] = 3
    elseif not status or status.state == PENDING then
        end_waiting(id, run, status, CANCELLED, reason, now)
        replies[i] = 0
    elseif status.state == RUNNING then
        request_cancel(id, status, reason)
        requested = true
        replies[i] = 1
    else
        replies[i] = 2
    end
end
if requested or unheld > 0 then notify() end
return replies
