--! use leases
-- lease_renew: extends leases that are still their holders' under their fences, even if expired. Never creates one.
--
-- ARGV: now or '', ttl in microseconds, then name, holder, fence for each. Returns for each its expiry, or nil if lost.
local expires = now_or(ARGV[1]) + tonumber(ARGV[2])
local renewed = {}
for at = 3, #ARGV, 3 do
    local name, holder, fence = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local owned = owns_lease(name, holder, fence)
    if owned then store_lease(name, fence, expires, holder) end
    renewed[#renewed + 1] = owned and expires
end
return renewed
