--! use record
-- Beats: when somebody last reached the store, and until when nothing is reaped because nobody could.
-- `is_silent(longest, now)`: whether nobody has beaten for longer than that ('' says nothing). A store that was never
-- beaten began with its first call.
local function is_silent(longest, now)
    if longest == '' then return false end
    local beat = tonumber(call('HGET', META, 'beat') or call('HGET', META, 'began') or format('%.0f', now))
    return now - beat > tonumber(longest)
end

-- Whether the clock has gone back since somebody beat, and an amnesty lasts longer than it could: until after `latest`.
local function clock_went_back(now, latest)
    local beat, spared = unpack(call('HMGET', META, 'beat', 'spared_until'))
    return beat and spared and now < tonumber(beat) and tonumber(spared) > latest
end
