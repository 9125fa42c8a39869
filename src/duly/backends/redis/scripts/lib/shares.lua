--! use merge
-- Scheduled and other runs of one priority share a claim, as `rules.sharing` defines.

-- How many of these places are reserved for scheduled runs.
local function share_of(room, request)
    if room >= 4 then return math.ceil(room / 4) end
    return request % 4 < room and 1 or 0
end

-- Takes up to `most` of the first runs of the sets of both kinds, at least `owed` scheduled ones as far as there are
-- any. Returns a flat list of id and ready time.
local function take_both(prefix, unscheduled_sets, scheduled_sets, now, most, owed)
    local others = first_of(prefix, unscheduled_sets, now, most)
    local scheduled = first_of(prefix, scheduled_sets, now, most)
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
    for _, name in ipairs(unscheduled_sets) do names[#names + 1] = name end
    for _, name in ipairs(scheduled_sets) do names[#names + 1] = name end
    return take_all(prefix, names, chosen)
end
