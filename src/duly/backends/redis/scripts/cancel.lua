--! use now waiting ring
-- cancel: ends waiting runs, held ones included; asks the workers of running ones.
--
-- ARGV: now or '', whether there is a reason ('1'), the reason, ids (msgpack). At most 500 a call.
-- Returns for each: 0 done, 1 requested, 2 too late, 3 unknown. A repeat finds what the first call left.
local now, reason = now_or(ARGV[1]), ARGV[2] == '1' and ARGV[3] or nil
local replies, asked = {}, false
for i, id in ipairs(cmsgpack.unpack(ARGV[4])) do
    local run, life = load_run(id)
    if not run then
        replies[i] = 3
    elseif not life or life.state == PENDING then
        end_waiting(id, run, life, CANCELLED, reason, now)
        replies[i] = 0
    elseif life.state == RUNNING then
        if life.flags % BOUND ~= CANCELLING then life.flags = life.flags + CANCELLING end
        life.reason = reason
        save_life(id, life)
        asked = true
        replies[i] = 1
    else
        replies[i] = 2
    end
end
if asked or put_back > 0 then ring() end
return replies
