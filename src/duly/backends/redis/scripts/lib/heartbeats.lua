--! use layout
-- Heartbeats: when a node last reached the store. After an outage of all nodes, nothing is reaped for a while: an amnesty.

-- The time of the last heartbeat, if it is longer ago than `longest` ('' for no limit); otherwise nil. A store without
-- any heartbeat began with its first call.
local function silent_since(longest, now)
    if longest == '' then return nil end
    local beat = tonumber(call('HGET', META, 'beat') or call('HGET', META, 'began') or format('%.0f', now))
    return now - beat > tonumber(longest) and beat or nil
end

-- Whether the clock went back after the last heartbeat, so that an amnesty ends later than `latest`, when it must end.
local function clock_went_back(now, latest)
    local beat, amnesty = unpack(call('HMGET', META, 'beat', 'spared_until'))
    return beat and amnesty and now < tonumber(beat) and tonumber(amnesty) > latest
end
