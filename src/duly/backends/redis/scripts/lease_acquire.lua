--! use leases
-- lease_acquire: takes a lease that is free or expired; extends it, under the same fence, if the caller holds it.
--
-- ARGV: now or '', name, holder, ttl in microseconds. Returns fence and expiry, or nil if another holder has it.
local now, name, holder = now_or(ARGV[1]), ARGV[2], ARGV[3]
local lease = lease_of(name)
local held = lease ~= nil and lease.expires > now
if held and lease.holder ~= holder then return false end
local fence = held and lease.fence
if not held then
    fence = string.format('%.0f', last_fence() + 1)
    store_fence(tonumber(fence))
end
local expires = now + tonumber(ARGV[4])
store_lease(name, fence, expires, holder)
return { tonumber(fence), expires }
