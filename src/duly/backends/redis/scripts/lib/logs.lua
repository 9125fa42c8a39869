-- Logs: the list `log:<name>` has the entries, each behind its time (8 bytes); the hash `gone` counts by log those that were
-- deleted, so that numbers go on.
--! const SLICE 1000
local LOG, GONE = KEYS[1] .. 'log:', KEYS[1] .. 'gone'

local function last_number(log)
    return (tonumber(redis.call('HGET', GONE, log)) or 0) + redis.call('LLEN', LOG .. log)
end

-- Appends the entries from number `first` on, and deletes the oldest ones beyond `keep`, if that is given.
local function append_to_log(log, entries, first, keep, now)
    local at = struct.pack('>i8', now)
    for from = first, #entries, SLICE do
        local part = {}
        for i = from, math.min(#entries, from + SLICE - 1) do part[#part + 1] = at .. entries[i] end
        redis.call('RPUSH', LOG .. log, unpack(part)) -- one call for many: a call for each costs five times as much
    end
    local over = keep and redis.call('LLEN', LOG .. log) - keep or 0
    if over > 0 then
        redis.call('LTRIM', LOG .. log, over, -1)
        redis.call('HINCRBY', GONE, log, over)
    end
end

local function delete_log(log)
    redis.call('DEL', LOG .. log)
    redis.call('HDEL', GONE, log)
end
