--! use leases notify
-- lease_release: releases leases that are still their holders'. Wakes sleeping nodes if one is free now.
--
-- ARGV: name, holder, fence for each. Returns how many were released.
local released = 0
for at = 1, #ARGV, 3 do
    if owns_lease(ARGV[at], ARGV[at + 1], ARGV[at + 2]) then released = released + redis.call('HDEL', LEASES, ARGV[at]) end
end
if released > 0 then notify() end
return released
