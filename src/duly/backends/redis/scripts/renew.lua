--! use clock run_records heartbeats
-- renew: extends each claim whose run is running under this fence, expired or not, and stores its progress.
--
-- ARGV: now or '', lease in microseconds, the longest silence or '', ids (msgpack), their fences (8 bytes each), the lengths
-- of their progress (msgpack), and the progress of all, concatenated. At most 1,000 claims a call.
-- A longer silence begins an amnesty first; if the clock went back, a present amnesty is shortened. Stores the time of this
-- heartbeat, with no ids too. Returns the numbers of the lost claims and of those to be cancelled, and since when the store
-- was silent ('' if it was not).
local now = now_or(ARGV[1])
local expires = now + tonumber(ARGV[2])
local silent = silent_since(ARGV[3], now)
if silent or clock_went_back(now, expires) then
    call('HSET', META, 'spared_until', format('%.0f', expires))
end
call('HSET', META, 'beat', format('%.0f', now))
local ids, fences = cmsgpack.unpack(ARGV[4]), ARGV[5]
silent = silent and format('%.0f', silent) or ''
if #ids == 0 then return { {}, {}, silent } end
local lengths, texts, at = cmsgpack.unpack(ARGV[6]), ARGV[7], 1
local lost, cancelled, running, changed = {}, {}, {}, {}
for i, text in ipairs(call('HMGET', STATUSES, unpack(ids))) do
    local progress = lengths[i] > 0 and sub(texts, at, at + lengths[i] - 1)
    at = at + lengths[i]
    if not text or byte(text, 2) ~= RUNNING or sub(text, 5, 12) ~= sub(fences, i * 8 - 7, i * 8) then
        lost[#lost + 1] = i
    else
        running[#running + 1] = expires
        running[#running + 1] = ids[i]
        if progress then
            local status = read_status(text)
            status.progress = progress
            if status.flags % ONLY_HELD < HAS_PROGRESS then status.flags = status.flags + HAS_PROGRESS end
            changed[#changed + 1] = ids[i]
            changed[#changed + 1] = write_status(status)
        end
        if byte(text, 3) % RESERVING == CANCELLING then cancelled[#cancelled + 1] = i end
    end
end
if #running > 0 then call('ZADD', RUNNING_SET, unpack(running)) end
if #changed > 0 then call('HSET', STATUSES, unpack(changed)) end
return { lost, cancelled, silent }
