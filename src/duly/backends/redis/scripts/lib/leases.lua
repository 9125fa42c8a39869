--! use now fence
-- A lease is one field of the hash <prefix>leases: "<fence>:<expires, microseconds>:<holder>".

local function lease_of(prefix, name)
    local text = redis.call('HGET', prefix .. 'leases', name)
    if not text then
        return nil
    end
    local fence, expires, holder = string.match(text, '^(%d+):(%d+):(.*)$')
    return { fence = fence, expires = tonumber(expires), holder = holder }
end

local function keep_lease(prefix, name, fence, expires, holder)
    redis.call('HSET', prefix .. 'leases', name, fence .. ':' .. string.format('%.0f', expires) .. ':' .. holder)
end

-- Whether the lease is this holder's under this fence, expired or not.
local function owns_lease(lease, holder, fence)
    return lease ~= nil and lease.holder == holder and lease.fence == fence
end
