--! use leases
-- Who holds a lease now. ARGV: name, now ("" for the server's clock).
-- Returns {holder, fence, expires}, or nil when it is free or expired.
local lease = lease_of(KEYS[1], ARGV[1])
if lease == nil or lease.expires <= now_or(ARGV[2]) then
    return false
end
return { lease.holder, tonumber(lease.fence), lease.expires }
