--! use record
-- Beats: when somebody last reached the store, and until when nothing is reaped because nobody could.
-- `silent_since(longest, now)`: since when nobody has beaten, if that is longer than `longest` ('' says nothing); else nil.
-- A store that was never beaten began with its first call.
local function silent_since(longest, now)
    if longest == '' then return nil end
    local beat = tonumber(call('HGET', META, 'beat') or call('HGET', META, 'began') or format('%.0f', now))
    return now - beat > tonumber(longest) and beat or nil
end

-- Whether the clock has gone back since somebody beat, and an amnesty lasts longer than it could: until after `latest`.
local function clock_went_back(now, latest)
    local beat, spared = unpack(call('HMGET', META, 'beat', 'spared_until'))
    return beat and spared and now < tonumber(beat) and tonumber(spared) > latest
end
