--! use record
-- Rosters: short lists of ids as texts in one hash, so that many are read and written in one call: the members of a group
-- (`groups`), and the waiting runs of a job's schedule (`plans`). Each id has a blank before and behind it.
local GROUPS, PLANS = P .. 'groups', P .. 'plans'
local find = string.find

local function roster_has(text, id)
    return text and find(text, ' ' .. id .. ' ', 1, true) ~= nil
end

local function roster_with(text, id)
    return (text or ' ') .. id .. ' '
end

-- The roster without this id, false if none is left.
local function roster_without(text, id)
    local from, to = find(text, ' ' .. id .. ' ', 1, true)
    if not from then return text end
    if from == 1 and to == #text then return false end
    return sub(text, 1, from) .. sub(text, to + 1)
end

local function roster_size(text)
    if not text then return 0 end
    local _, blanks = string.gsub(text, ' ', ' ')
    return blanks - 1
end

local function roster_ids(text)
    local ids = {}
    for id in string.gmatch(text or '', '%S+') do ids[#ids + 1] = id end
    return ids
end

-- Enters an id; entering it again changes nothing.
local function join(key, field, id)
    local text = call('HGET', key, field)
    if not roster_has(text, id) then call('HSET', key, field, roster_with(text, id)) end
end

-- Strikes an id; whether it was there.
local function leave(key, field, id)
    local text = call('HGET', key, field)
    if not roster_has(text, id) then return false end
    text = roster_without(text, id)
    if text then
        call('HSET', key, field, text)
    else
        call('HDEL', key, field)
    end
    return true
end
