-- Wakes whoever waits for work. A node that goes to sleep leaves a note (`doze`); only then is anything said, once.
-- The number of rings lets a node find out that one came between its last look and its going to sleep.
local function ring()
    local rings = redis.call('HINCRBY', KEYS[1] .. 'meta', 'rings', 1)
    if redis.call('DEL', KEYS[1] .. 'asleep') == 1 then
        redis.call('PUBLISH', KEYS[1] .. 'work', rings)
    end
end
