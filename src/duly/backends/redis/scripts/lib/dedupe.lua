--! use layout
-- Dedupe keys. The hash `dedupe` has those of unfinished runs. `unique` has those that stay with a run for a time,
-- whatever becomes of it: until when, when the run was created, and its id; `uniques` orders them by the first.
local UNIQUE = P .. 'unique'

-- The run that has the dedupe key of this one: an unfinished one; or one that keeps the key for a time, and when that
-- one was created.
local function duplicate_of(run, now)
    local field = run.handler .. '\0' .. run.dedupe
    local id = call('HGET', P .. 'dedupe', field)
    if id then return id end
    local text = call('HGET', UNIQUE, field)
    if not text then return nil end
    local till, created = unpack_from('>i8i8', text)
    if till > now then return sub(text, 17), created end
end

-- Gives a run its dedupe key while it is unfinished, and at least for `span` microseconds if given.
local function take_dedupe_key(id, run, span, now)
    local field = run.handler .. '\0' .. run.dedupe
    call('HSET', P .. 'dedupe', field, id)
    if span then
        call('HSET', UNIQUE, field, pack('>i8i8', now + span, now) .. id)
        call('ZADD', P .. 'uniques', now + span, field)
    end
end
