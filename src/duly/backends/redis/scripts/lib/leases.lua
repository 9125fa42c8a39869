--! use clock fences
-- Leases: each is a field of the hash `leases`, "<fence>:<expiry in microseconds>:<holder>".
local LEASES = KEYS[1] .. 'leases'

local function lease_of(name)
    local text = redis.call('HGET', LEASES, name)
    if not text then return nil end
    local fence, expires, holder = string.match(text, '^(%d+):(%d+):(.*)$')
    return { fence = fence, expires = tonumber(expires), holder = holder }
end

local function store_lease(name, fence, expires, holder)
    redis.call('HSET', LEASES, name, fence .. ':' .. string.format('%.0f', expires) .. ':' .. holder)
end

-- Whether this holder has the lease under this fence, expired or not.
local function owns_lease(name, holder, fence)
    local lease = lease_of(name)
    return lease ~= nil and lease.holder == holder and lease.fence == fence
end
