--! use layout
-- Short lists of ids, each one string in a hash, so that one call reads or writes many of them: the members of a group
-- (`groups`), and the waiting runs of a job's schedule (`plans`). Each id has a blank before and after it.
local GROUPS, SCHEDULE_LISTS = P .. 'groups', P .. 'plans'
local find = string.find

local function list_has(text, id)
    return text and find(text, ' ' .. id .. ' ', 1, true) ~= nil
end

local function list_with(text, id)
    return (text or ' ') .. id .. ' '
end

-- The list without this id; false if it becomes empty.
local function list_without(text, id)
    local from, to = find(text, ' ' .. id .. ' ', 1, true)
    if not from then return text end
    if from == 1 and to == #text then return false end
    return sub(text, 1, from) .. sub(text, to + 1)
end

local function list_size(text)
    if not text then return 0 end
    local _, blanks = string.gsub(text, ' ', ' ')
    return blanks - 1
end

local function list_ids(text)
    local ids = {}
    for id in string.gmatch(text or '', '%S+') do ids[#ids + 1] = id end
    return ids
end

-- Adds an id, if it is not there.
local function add_to_list(key, field, id)
    local text = call('HGET', key, field)
    if not list_has(text, id) then call('HSET', key, field, list_with(text, id)) end
end

-- Removes an id; whether it was there.
local function remove_from_list(key, field, id)
    local text = call('HGET', key, field)
    if not list_has(text, id) then return false end
    text = list_without(text, id)
    if text then
        call('HSET', key, field, text)
    else
        call('HDEL', key, field)
    end
    return true
end
