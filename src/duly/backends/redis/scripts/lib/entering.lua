-- Enters a run by a time into the list of a sorted set, as the words of one ZADD for all of them.
local function enter(sets, name, time, id)
    local set = sets[name]
    if not set then
        set = {}
        sets[name] = set
    end
    local n = #set
    set[n + 1], set[n + 2] = time, id
end
