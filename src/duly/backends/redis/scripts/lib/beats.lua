--! use record
-- Beats: when somebody last reached the store, and until when nothing is reaped because nobody could.
-- `is_silent(longest, now)`: whether nobody has beaten for longer than that ('' says nothing). A store that was never
-- beaten began with its first call.
local function is_silent(longest, now)
    if longest == '' then return false end
    local beat = tonumber(call('HGET', META, 'beat') or call('HGET', META, 'began') or format('%.0f', now))
    return now - beat > tonumber(longest)
end
