-- Appends a pair to the arguments of one ZADD or HSET per key. `lists` maps the name of a key to its arguments.
local function append_pair(lists, name, first, second)
    local list = lists[name]
    if not list then
        list = {}
        lists[name] = list
    end
    local n = #list
    list[n + 1], list[n + 2] = first, second
end
