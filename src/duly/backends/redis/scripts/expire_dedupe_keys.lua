--! use clock layout
-- expire_dedupe_keys: deletes dedupe keys that stayed unique for a time which has passed, the earliest first.
--
-- ARGV: now or '', limit. At most 500 a call. Returns how many; a repeat continues with what is left.
local most = math.min(tonumber(ARGV[2]), 500)
local fields = call('ZRANGEBYSCORE', P .. 'uniques', '-inf', now_or(ARGV[1]), 'LIMIT', 0, most)
if #fields > 0 then
    call('HDEL', P .. 'unique', unpack(fields))
    call('ZREM', P .. 'uniques', unpack(fields))
end
return #fields
