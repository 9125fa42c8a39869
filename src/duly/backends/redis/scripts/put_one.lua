--! use clock creation_pages notify
-- put_one: adds one run that is ready and has no traits: no group, no dedupe key, not scheduled, neither held nor ended. Most
-- submissions are such. The same as `put` with one run, but nothing is defined or decoded that such a run does not need: with
-- one run a call, that costs more than the commands.
--
-- ARGV: now or '', id, ready time, queue key, queue, job, and the body from `traits` on. Returns now if the run was added; 0 if
-- it is not ready yet or its id exists: then nothing has changed, and `put` must decide.
local call, P = redis.call, KEYS[1]
local now, id, queue_key = now_or(ARGV[1]), ARGV[2], ARGV[4]
if tonumber(ARGV[3]) > now or call('HEXISTS', P .. 'runs', id) == 1 then return 0 end
local head = struct.pack('>BBBBI8BI8', 0xdc, 0, 21, 0xcf, now, 0xcf, append_to_page(id .. ' '))
call('HSET', P .. 'runs', id, head .. ARGV[7])
call('SADD', P .. 'job:' .. ARGV[6], id)
call('HINCRBY', P .. 'depths', 'w' .. ARGV[5], 1)
call('ZADD', P .. 'ready:' .. queue_key, ARGV[3], id)
call('SADD', P .. 'lanes', queue_key)
notify()
return now
