--! use layout notify
-- reopen: gives the keys of a closed store their names again, and removes its mark.
--
-- ARGV: what they begin with, then their names, and those of the strings in their place. A repeat changes nothing.
local under = ARGV[1]
for i = 2, #ARGV do
    local name = ARGV[i]
    if call('TYPE', P .. name).ok == 'string' and call('GET', P .. name) == 'closed' then call('DEL', P .. name) end
    if call('EXISTS', P .. under .. name) == 1 then call('RENAME', P .. under .. name, P .. name) end
end
call('DEL', P .. 'mark')
notify()
