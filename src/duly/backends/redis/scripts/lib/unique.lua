--! use record
-- Dedupe keys: `dedupe` has those of unfinished runs. `unique` has those that stay with a run for a time, whatever becomes of
-- it, with that time, when the run was created, and its id; `uniques` orders them by that time, so that they can go.
local UNIQUE = P .. 'unique'

local function key_of(run)
    return run.handler .. '\0' .. run.dedupe
end

-- The run to which the key of this one is unique now, and when it was created; nil if there is none.
local function unique_twin(run, now)
    local text = call('HGET', UNIQUE, key_of(run))
    if not text then return nil end
    local till, created = unpack_from('>i8i8', text)
    if till > now then return sub(text, 17), created end
end

-- The run that has the key of this one: an unfinished one; or one that is still unique, and when it was created.
local function twin_of(run, now)
    local twin = call('HGET', P .. 'dedupe', key_of(run))
    if twin then return twin end
    return unique_twin(run, now)
end

-- Gives a run the key, for as long as it is unfinished, and for so many microseconds if given.
local function take_key(id, run, span, now)
    local key = key_of(run)
    call('HSET', P .. 'dedupe', key, id)
    if span then
        call('HSET', UNIQUE, key, pack('>i8i8', now + span, now) .. id)
        call('ZADD', P .. 'uniques', now + span, key)
    end
end
