--! use now fence lives beats
-- reap: takes expired claims over under fresh fences, the longest expired first; nothing while an amnesty lasts, nor
-- after a silence that says that the store was away.
--
-- ARGV: now or '', limit, lease in microseconds, the longest silence or ''. The run keeps node and start of the lost attempt. No longer lent by its
-- request: a repeat of that must not learn the new fence. Takes no more than 1,000; a repeat takes what is left.
-- Returns expiry, ids, their bodies in one string, their lives as they are now, and when the lost claims expired.
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
local fence = last_fence()
keep_fence(fence + #ids)
local found, bodies, lives, running, changed, before = {}, {}, {}, {}, {}, {}
local texts = call('HMGET', LIVES, unpack(ids))
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    local ok, life = pcall(read_life, texts[i])
    if ok and body then
        local n = #found + 1
        fence = fence + 1
        life.fence, life.request = fence, 0
        found[n], bodies[n], lives[n], before[n] = ids[i], body, write_life(life), expired[ids[i]]
        running[n * 2 - 1], running[n * 2] = expires, ids[i]
        changed[n * 2 - 1], changed[n * 2] = ids[i], lives[n]
    else -- nobody can say what became of it: it must not stand before the others for ever
        call('ZREM', RUNNING_SET, ids[i])
        call('SADD', P .. 'damaged', ids[i])
    end
end
if #found > 0 then
    call('HSET', LIVES, unpack(changed))
    call('ZADD', RUNNING_SET, unpack(running))
end
return { expires, found, table.concat(bodies), lives, before }
