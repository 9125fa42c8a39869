--! use clock waiting_sets run_records merge
-- read_ahead: runs of schedules that are ready after now and by an instant, by ready time, then id. Changes nothing.
--
-- ARGV: now or '', the instant, ready time and id after which to begin ('' and '': after all that are ready now), where to
-- begin (from 0), of how many one is read, how many to read at most (up to 1,000).
-- Left out are runs with a status, which were tried before, and runs of paused queues and of paused or removed jobs.
-- Returns now, ids, their bodies, and the ready time and id after which the next call continues ('' and '' if there is no
-- more).
local now = now_or(ARGV[1])
local last, after_time, after_id = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local start, step, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local most = step * limit

-- How many members of a sorted set come before the place where to begin. Members of one score are ordered by their bytes:
-- a binary search finds the place even if the run that was there is gone, and does not read those before it.
local function position(key)
    if after_id == '' then return call('ZCOUNT', key, '-inf', format('%.0f', now)) end
    local low, high = call('ZCOUNT', key, '-inf', '(' .. after_time), call('ZCOUNT', key, '-inf', after_time)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if call('ZRANGE', key, middle, middle)[1] > after_id then high = middle else low = middle + 1 end
    end
    return low
end

local entries, sets = {}, 0
for _, name in ipairs(call('SMEMBERS', WAITING_SETS)) do
    if byte(name) == MARK_BYTE then
        local key = WAITING .. name
        local first = position(key)
        local some = call('ZRANGE', key, first, first + most, 'WITHSCORES')
        if #some > 0 then sets = sets + 1 end
        for i = 1, #some, 2 do
            local ready = tonumber(some[i + 1])
            if ready > last then break end
            entries[#entries + 1] = { ready, some[i], name, some[i + 1] }
        end
    end
end
if sets > 1 then table.sort(entries, is_before) end
local ids = {}
for i = start + 1, math.min(#entries, most), step do ids[#ids + 1] = entries[i][2] end
local next_time, next_id = '', ''
if #entries > most and most > 0 then next_time, next_id = entries[most][4], entries[most][2] end
if #ids == 0 then return { now, {}, {}, next_time, next_id } end

-- Paused queues, blocked jobs and runs that were tried are rare: one EXISTS answers for all as long as there are none.
local rare = call('EXISTS', P .. 'paused', P .. 'blocked', TOUCHED) > 0
local statuses = rare and call('HMGET', STATUSES, unpack(ids)) or {}
-- Whether a run may not start now, as far as its queue and its job decide.
local function is_stopped(body)
    local ok, _, handler, job, queue_key = pcall(decode_some, body, 3, HANDLER_AT)
    if not ok or not queue_key then return true end
    return call('SISMEMBER', P .. 'paused', (split_queue_key(queue_key))) == 1
        or call('SISMEMBER', P .. 'paused', '*') == 1
        or call('SISMEMBER', P .. 'blocked', job or handler) == 1
end

local found, bodies = {}, {}
for i, body in ipairs(call('HMGET', RUNS, unpack(ids))) do
    if body and not (rare and (statuses[i] or is_stopped(body))) then
        found[#found + 1] = ids[i]
        bodies[#bodies + 1] = body
    end
end
return { now, found, bodies, next_time, next_id }
