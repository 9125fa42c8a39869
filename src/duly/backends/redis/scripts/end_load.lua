--! use layout fences notify
-- end_load: gives the keys that an import has loaded their names, and removes the mark.
--
-- ARGV: what they begin with, the fence above which all later ones are, then their names. Returns 1; 0, and changes
-- nothing, if another process has stored something meanwhile.
local under = ARGV[1]
if call('EXISTS', RUNS, P .. 'jobs') > 0 then return 0 end
for i = 3, #ARGV do
    if ARGV[i] == 'meta' then
        call('HSET', META, unpack(call('HGETALL', P .. under .. 'meta')))
        call('DEL', P .. under .. 'meta')
    else
        call('RENAME', P .. under .. ARGV[i], P .. ARGV[i])
    end
end
call('HSET', META, 'recent', call('TIME')[1] .. '000000') -- ends before that are not in the lists of their jobs
store_fence(math.max(last_fence(), tonumber(ARGV[2])))
call('DEL', P .. 'mark')
notify()
return 1
