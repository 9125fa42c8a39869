--! use now lives beats
-- renew: extends each claim whose run is running under this fence, expired or not, and keeps its progress.
--
-- ARGV: now or '', lease in microseconds, the longest silence or '', ids (msgpack), their fences (8 bytes each, put together), progress by number
-- (msgpack map of lengths), the texts of progress put together.
-- After a longer silence an amnesty begins first; when the clock has gone back, one that lasts is shortened. Stamps the
-- store-wide beat, with no ids too. Returns the numbers of the lost and of those to be cancelled, and since when it was
-- silent ('' if it was not).
-- At most 1,000 claims a call.
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
local progress, texts, at = cmsgpack.unpack(ARGV[6]), ARGV[7], 1
local lost, cancelled, running, changed = {}, {}, {}, {}
for i, text in ipairs(call('HMGET', LIVES, unpack(ids))) do
    local told = progress[i] > 0 and sub(texts, at, at + progress[i] - 1)
    at = at + progress[i]
    if not text or byte(text, 2) ~= RUNNING or sub(text, 5, 12) ~= sub(fences, i * 8 - 7, i * 8) then
        lost[#lost + 1] = i
    else
        running[#running + 1] = expires
        running[#running + 1] = ids[i]
        if told then
            local life = read_life(text)
            local after = decode_some(life.tail, 1, 0)
            life.tail = told .. sub(life.tail, after + 1)
            if life.flags % FRESH < TOLD then life.flags = life.flags + TOLD end
            changed[#changed + 1] = ids[i]
            changed[#changed + 1] = write_life(life)
        end
        if byte(text, 3) % BOUND == CANCELLING then cancelled[#cancelled + 1] = i end
    end
end
if #running > 0 then call('ZADD', RUNNING_SET, unpack(running)) end
if #changed > 0 then call('HSET', LIVES, unpack(changed)) end
return { lost, cancelled, silent }
