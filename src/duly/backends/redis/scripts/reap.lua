--! use clock heartbeats take_over
-- reap: takes over expired claims under new fences, the longest expired first; none during an amnesty, nor after a silence
-- that shows an outage of the store.
--
-- ARGV: now or '', limit, lease in microseconds, the longest silence or ''. Takes no more than 1,000; a repeat takes what is
-- left. Returns what `take_over` returns.
local now = now_or(ARGV[1])
local expires = now + tonumber(ARGV[3])
local most = math.min(tonumber(ARGV[2]), 1000)
local ids, expired = {}, {}
local lapsed = call('ZRANGEBYSCORE', RUNNING_SET, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #lapsed, 2 do
    ids[#ids + 1] = lapsed[i]
    expired[lapsed[i]] = lapsed[i + 1]
end
if #ids == 0 or now < tonumber(call('HGET', META, 'spared_until') or '0') or silent_since(ARGV[4], now) then
    return { expires, {}, '', {}, {} }
end
return take_over(ids, expired, expires)
