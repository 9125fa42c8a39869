--! use merging
-- Scheduled and other runs of one priority share a claim, as `rules.sharing` says.

-- How many of these places scheduled runs have for sure.
local function share_of(room, request)
    if room >= 4 then return math.ceil(room / 4) end
    return request % 4 < room and 1 or 0
end

-- Takes the first runs of the sorted sets of both kinds, at most so many; at least `owed` of the scheduled ones, as far as
-- there are any. A flat list of id and ready time.
local function take_both(prefix, plain, planned, now, most, owed)
    local others, scheduled = first_of(prefix, plain, now, most), first_of(prefix, planned, now, most)
    local first, other = 0, 0
    while first + other < most and (first < #scheduled or other < #others) do
        local a, b = scheduled[first + 1], others[other + 1]
        if a and (not b or is_before(a, b)) then first = first + 1 else other = other + 1 end
    end
    local due = math.min(owed, #scheduled, most)
    if first < due then first, other = due, math.min(other, most - due) end
    local chosen, names = {}, {}
    for i = 1, first do chosen[i] = scheduled[i] end
    for i = 1, other do chosen[first + i] = others[i] end
    for _, name in ipairs(plain) do names[#names + 1] = name end
    for _, name in ipairs(planned) do names[#names + 1] = name end
    return take_all(prefix, names, chosen)
end
