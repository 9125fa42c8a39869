--! use fences
-- identify: is this the store that the caller knows, with all that it acknowledged?
--
-- The hash `incarnation` has: id, number (1 for a new store), began, and lost: when a loss was last noticed, and how.
-- ARGV: the id the caller knows ('' for none), the greatest fence it saw (0 for none), an id for a new incarnation, and the
-- number of the one it knows (0 for none).
-- Returns id, number, last fence and verdict. Verdicts: 'same'; 'new' (there was no store, and the caller knew none);
-- 'other' (another caller has begun a new one); 'empty' (there is none where the caller knew one); 'behind' (it is the one
-- the caller knows, but fences it gave out are gone: it lost its latest changes). Every loss begins a new incarnation,
-- once, and its fences are greater than all that the caller saw.
local known, seen, key = ARGV[1], tonumber(ARGV[2]), KEYS[1] .. 'incarnation'
local id = redis.call('HGET', key, 'id')
local last = tonumber(redis.call('HGET', KEYS[1] .. 'meta', 'fence') or 0)
local verdict = 'same'
if not id then
    verdict = known == '' and 'new' or 'empty'
elseif known ~= '' and known ~= id then
    verdict = 'other'
elseif last < seen then
    verdict = 'behind'
end
if verdict ~= 'same' and verdict ~= 'other' then
    id = ARGV[3]
    local number = math.max(tonumber(redis.call('HGET', key, 'number') or 0), tonumber(ARGV[4])) + 1
    local began = redis.call('TIME')[1]
    redis.call('HSET', key, 'id', id, 'number', number, 'began', began)
    if verdict ~= 'new' then redis.call('HSET', key, 'lost', began, 'how', verdict) end
end
if last < seen then
    last = seen
    store_fence(last)
end
-- Since when every end of a run is in the list of its job (`recent_runs`): always in a new store.
local meta = KEYS[1] .. 'meta'
if redis.call('HEXISTS', meta, 'recent') == 0 then
    local empty = redis.call('EXISTS', KEYS[1] .. 'totals') == 0
    redis.call('HSET', meta, 'recent', empty and '0' or redis.call('TIME')[1] .. '000000')
end
return { id, tonumber(redis.call('HGET', key, 'number')), last, verdict }
