--! use clock fences
-- identify: is this the store that the caller knows, with all that it acknowledged?
--
-- The hash `incarnation` has: id, number (1 for a new store), began, and lost: when a loss was last noticed, and how. With a
-- loss also `since`, the number of the incarnation that it began, and `added` and `settled`, the counts of runs that were
-- ever added and settled as the loss left them.
-- ARGV: the id the caller knows ('' for none), the greatest fence it saw (0 for none), an id for a new incarnation, the
-- number of the one it knows (0 for none), and the greatest counts of added and settled runs it saw (0 for none).
-- Returns id, number, last fence, verdict, and how many added and settled runs the caller knows that are lost. Verdicts:
-- 'same'; 'new' (there was no store, and the caller knew none); 'other' (another caller has begun a new one); 'empty' (there
-- is none where the caller knew one); 'behind' (it is the one the caller knows, but fences it gave out or runs it counted
-- are gone: it lost its latest changes). Every loss begins a new incarnation, once, and its fences and counts are greater
-- than all that the caller saw. Each caller that knows of something lost appends an entry to the log `losses`.
-- If the store is not in use (`backends.marks`), nothing is compared, and only its mark is returned.
--! const KEPT_LOSSES 1000
local call = redis.call
local known, seen, key, meta = ARGV[1], tonumber(ARGV[2]), KEYS[1] .. 'incarnation', KEYS[1] .. 'meta'
local seen_added, seen_settled = tonumber(ARGV[5]), tonumber(ARGV[6])
local mark = call('GET', KEYS[1] .. 'mark')
if mark then return { mark } end
local id = call('HGET', key, 'id')
local last = tonumber(call('HGET', meta, 'fence') or 0)
local added, settled = tonumber(call('HGET', meta, 'added') or 0), tonumber(call('HGET', meta, 'settled') or 0)
local verdict = 'same'
if not id then
    verdict = known == '' and 'new' or 'empty'
elseif known ~= '' and known ~= id then
    verdict = 'other'
    -- What the loss left, if the entry is of the present incarnation: older versions of this script do not write it.
    if call('HGET', key, 'since') == call('HGET', key, 'number') then
        added, settled = tonumber(call('HGET', key, 'added')), tonumber(call('HGET', key, 'settled'))
    end
elseif last < seen or added < seen_added or settled < seen_settled then
    verdict = 'behind'
end
local lost_added, lost_settled = math.max(0, seen_added - added), math.max(0, seen_settled - settled)
if verdict ~= 'same' and verdict ~= 'other' then
    id = ARGV[3]
    local number = math.max(tonumber(call('HGET', key, 'number') or 0), tonumber(ARGV[4])) + 1
    local began = call('TIME')[1]
    call('HSET', key, 'id', id, 'number', number, 'began', began)
    if verdict ~= 'new' then
        call('HSET', key, 'lost', began, 'how', verdict, 'since', number, 'added', added, 'settled', settled)
    end
end
local number = tonumber(call('HGET', key, 'number'))
if verdict == 'empty' or verdict == 'behind' or (verdict == 'other' and lost_added + lost_settled > 0) then
    local entry = { incarnation = number, how = verdict, added = lost_added, settled = lost_settled }
    call('RPUSH', KEYS[1] .. 'log:losses', struct.pack('>i8', (now_or(''))) .. cjson.encode(entry))
    local over = call('LLEN', KEYS[1] .. 'log:losses') - KEPT_LOSSES
    if over > 0 then
        call('LTRIM', KEYS[1] .. 'log:losses', over, -1)
        call('HINCRBY', KEYS[1] .. 'gone', 'losses', over)
    end
end
if last < seen then
    last = seen
    store_fence(last)
end
-- The counts never go back, so that a second loss is measured from the greatest count of the first.
if seen_added > tonumber(call('HGET', meta, 'added') or 0) then call('HSET', meta, 'added', seen_added) end
if seen_settled > tonumber(call('HGET', meta, 'settled') or 0) then call('HSET', meta, 'settled', seen_settled) end
-- Since when every end of a run is in the list of its job (`recent_runs`): always in a new store.
if call('HEXISTS', meta, 'recent') == 0 then
    local empty = call('EXISTS', KEYS[1] .. 'totals') == 0
    call('HSET', meta, 'recent', empty and '0' or call('TIME')[1] .. '000000')
end
return { id, number, last, verdict, lost_added, lost_settled }
