--! use leases
-- Take a lease if nobody holds it or its holder's time is up; extend it, same fence, if the asker holds it.
-- ARGV: name, holder, ttl (microseconds), now ("" for the server's clock).
-- Returns {fence, expires}, or nil when somebody else holds it.
local prefix, name, holder = KEYS[1], ARGV[1], ARGV[2]
local now = now_or(ARGV[4])
local present = lease_of(prefix, name)
local held = present ~= nil and present.expires > now
if held and present.holder ~= holder then
    return false
end
local fence = held and present.fence
if not held then
    fence = string.format('%.0f', last_fence() + 1)
    keep_fence(tonumber(fence))
end
local expires = now + tonumber(ARGV[3])
keep_lease(prefix, name, fence, expires, holder)
return { tonumber(fence), expires }
