--! use waiting_set_names notify
-- close: moves the keys that a dump reads, and those that a change needs first, under another name, and puts a string in
-- their place: every script of every session fails on it before it changes anything.
--
-- ARGV: what the new names begin with, the mark, then the names of values and logs. A repeat only replaces the mark.
local under, mark = ARGV[1], ARGV[2]
if call('EXISTS', P .. 'mark') == 0 then
    local moved = {
        'runs', 'lives', 'attempts', 'jobs', 'names', 'handlers', 'statistics', 'tallies', 'totals', 'depths', 'levels',
        'lanes', 'running', 'groups', 'plans', 'dedupe', 'unique', 'uniques', 'holds', 'blocked', 'paused', 'touched',
        'unstaffed', 'meta', 'epochs', 'pages', 'gone', 'shards', 'leases', 'nodes', 'alive', 'metrics', 'shared',
        'assignees', 'ended:3', 'ended:4', 'ended:5', 'ended:6', 'ended:7',
    }
    local sets = waiting_set_names(call('HKEYS', P .. 'holds'))
    for _, page in ipairs(call('ZRANGE', P .. 'pages', 0, -1)) do sets[#sets + 1] = 'page:' .. page end
    for i = 3, #ARGV do moved[#moved + 1] = ARGV[i] end
    for _, name in ipairs(sets) do
        if call('EXISTS', P .. name) == 1 then call('RENAME', P .. name, P .. under .. name) end
    end
    for _, name in ipairs(moved) do
        if call('EXISTS', P .. name) == 1 then call('RENAME', P .. name, P .. under .. name) end
        call('SET', P .. name, 'closed')
    end
end
call('SET', P .. 'mark', mark)
notify()
