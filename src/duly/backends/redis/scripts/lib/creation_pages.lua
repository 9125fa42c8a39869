-- The order of creation: ids are appended to pages, which are strings of some 4 kB; `pages` orders them.
--! const PAGE_BYTES 4096
--! const PLACES 16777216

-- Appends ids, each followed by a blank, to the current page. Returns their common place: the page and their offset in it, as
-- one number that grows from call to call. Nothing is appended to a full page, nor to one from which ids were deleted
-- (`delete_records`).
local function append_to_page(text)
    local prefix = KEYS[1]
    local page = redis.call('HGET', prefix .. 'meta', 'page')
    if not page then
        page = redis.call('HINCRBY', prefix .. 'meta', 'pages', 1)
        redis.call('HSET', prefix .. 'meta', 'page', page)
        redis.call('ZADD', prefix .. 'pages', page, page)
    end
    local key = prefix .. 'page:' .. page
    local filled = redis.call('APPEND', key, text)
    if filled > PAGE_BYTES then
        redis.call('HDEL', prefix .. 'meta', 'page')
        redis.call('SET', key, redis.call('GET', key)) -- APPEND reserves space behind the string; this frees it
    end
    return page * PLACES + filled - #text
end
