--! use leases
-- lease_holder: who holds a lease now. Changes nothing.
--
-- ARGV: now or '', name. Returns holder, fence and expiry, or nil if it is free or expired.
local lease = lease_of(ARGV[2])
if lease == nil or lease.expires <= now_or(ARGV[1]) then return false end
return { lease.holder, tonumber(lease.fence), lease.expires }
