--! use now unique
-- expire: deletes dedupe keys whose time has passed, the longest passed first. Nobody looks at them any more.
--
-- ARGV: now or '', limit. At most 500 a call. Returns how many; a repeat goes on with what is left.
local most = math.min(tonumber(ARGV[2]), 500)
local keys = call('ZRANGEBYSCORE', P .. 'uniques', '-inf', now_or(ARGV[1]), 'LIMIT', 0, most)
if #keys > 0 then
    call('HDEL', UNIQUE, unpack(keys))
    call('ZREM', P .. 'uniques', unpack(keys))
end
return #keys
