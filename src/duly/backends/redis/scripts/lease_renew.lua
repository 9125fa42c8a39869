--! use leases
-- Extend leases that are still their holders' under their fences, even if expired. Never creates one.
-- ARGV: ttl (microseconds), now ("" for the server's clock), then name, holder, fence for each.
-- Returns for each, in order, when it expires, or nil if it was lost.
local prefix = KEYS[1]
local expires = now_or(ARGV[2]) + tonumber(ARGV[1])
local renewed = {}
for at = 3, #ARGV, 3 do
    local name, holder, fence = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local kept = owns_lease(lease_of(prefix, name), holder, fence)
    if kept then
        keep_lease(prefix, name, fence, expires, holder)
    end
    renewed[#renewed + 1] = kept and expires
end
return renewed
