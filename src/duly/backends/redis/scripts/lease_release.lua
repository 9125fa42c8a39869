--! use leases ring
-- Give leases back; those that are lost or given back already are left alone. Rings if one is free now.
-- ARGV: name, holder, fence for each. Returns how many were given back.
local prefix = KEYS[1]
local released = 0
for at = 1, #ARGV, 3 do
    if owns_lease(lease_of(prefix, ARGV[at]), ARGV[at + 1], ARGV[at + 2]) then
        released = released + redis.call('HDEL', prefix .. 'leases', ARGV[at])
    end
end
if released > 0 then
    ring()
end
return released
