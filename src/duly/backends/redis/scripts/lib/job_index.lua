--! use jobs
-- The index of jobs. `names` has the names of all jobs; `handlers` has, for each job that needs a handler, 'a' or, if it is
-- retired, 'r', then handler, NUL and name. Members of equal score are ordered byte by byte, so that slices are found by
-- name. Scripts of 0.1.0 keep neither: see `missing_names`, and `RedisStore.reindex`.
local NAMES, HANDLERS = P .. 'names', P .. 'handlers'

-- The handler in the record of a job, which begins with the fields uid and spec, and spec with name and handler.
local function handler_in(record)
    local at, _, _, spec = decode_some(record, 3, byte(record) == 0xDE and 3 or 1)
    local _, _, _, key, handler = decode_some(record, 4, at + (byte(record, at + 1) == 0xDE and 3 or 1))
    if spec == 'spec' and key == 'handler' then return handler end
end

local function unindex(name, record)
    local ok, handler = pcall(handler_in, record)
    if ok and handler then
        call('ZREM', HANDLERS, 'a' .. handler .. '\0' .. name, 'r' .. handler .. '\0' .. name)
    end
end

-- `place` is 'a' or 'r' and the handler, '' if the job needs none; `record` is the former one, if there is one.
local function index(name, place, record)
    call('ZADD', NAMES, 0, name)
    if record then unindex(name, record) end
    if place ~= '' then call('ZADD', HANDLERS, 0, place .. '\0' .. name) end
end

-- How many jobs are not in the index, because a process of 0.1.0 has added them; negative if it has removed some.
local function missing_names()
    return call('HLEN', JOBS) - call('ZCARD', NAMES)
end
