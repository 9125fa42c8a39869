--! use fence
-- Is this the store that the caller knew, with all that it acknowledged?
-- <prefix>incarnation is a hash: id, number (1 for a new store), began, and lost: when a loss was last noticed, and how.
-- ARGV: the id the caller knows ("" for none), the last fence it saw (0 for none), an id for a new incarnation, and the
-- number of the one it knows (0 for none).
-- Returns {id, number, last fence, verdict}. Verdicts: "same"; "new" (there was no store, and the caller knew of none);
-- "other" (it is not the caller's: somebody has begun a new one); "empty" (there is none where the caller knew one);
-- "behind" (the caller's, but fences it gave out are gone: it lost its tail). Every loss begins a new incarnation, once,
-- and its fences are above all that the caller has seen.
local prefix, known, seen = KEYS[1], ARGV[1], tonumber(ARGV[2])
local key = prefix .. 'incarnation'
local id = redis.call('HGET', key, 'id')
local last = tonumber(redis.call('HGET', prefix .. 'meta', 'fence') or 0)
local verdict = 'same'
if not id then
    verdict = known == '' and 'new' or 'empty'
elseif known ~= '' and known ~= id then
    verdict = 'other'
elseif last < seen then
    verdict = 'behind'
end
if verdict == 'new' or verdict == 'empty' or verdict == 'behind' then
    id = ARGV[3]
    redis.call('HSET', key, 'id', id)
    local number = math.max(tonumber(redis.call('HGET', key, 'number') or 0), tonumber(ARGV[4])) + 1
    redis.call('HSET', key, 'number', number)
    local began = redis.call('TIME')[1]
    redis.call('HSET', key, 'began', began)
    if verdict ~= 'new' then
        redis.call('HSET', key, 'lost', began, 'how', verdict)
    end
end
if last < seen then
    last = seen
    keep_fence(last)
end
return { id, tonumber(redis.call('HGET', key, 'number')), last, verdict }
