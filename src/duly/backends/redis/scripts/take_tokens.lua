--! use clock
-- take_tokens: takes tokens from a bucket that refills at `rate` a second up to `burst`. A new bucket is full.
--
-- ARGV: now or '', bucket, tokens, rate, burst. The bucket expires when it is sure to be full again.
-- Returns the seconds to wait as text: '0' if they were taken, 'inf' if they never can be.
local now, server = now_or(ARGV[1])
local tokens, rate, burst = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local key = KEYS[1] .. 'bucket:' .. ARGV[2]
local stored = redis.call('GET', key)
local level, since = burst, now
if stored then level, since = struct.unpack('>dd', stored) end
level = math.min(burst, level + math.max(0, now - since) / 1000000 * rate)
local wait = '0'
if tokens <= level then
    level = level - tokens
elseif tokens > burst or rate <= 0 then
    wait = 'inf'
else
    wait = string.format('%.17g', (tokens - level) / rate)
end
local text = struct.pack('>dd', level, now)
-- A test's clock may stand still while the server's goes on: then nothing expires.
if server and rate > 0 then
    redis.call('SET', key, text, 'EX', math.ceil(math.min(burst / rate, 1e8)) + 60)
else
    redis.call('SET', key, text)
end
return wait
