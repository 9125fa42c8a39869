--! use waiting
-- Forgetting runs for good: their records, their history, and their place in the order of creation.

-- Takes ids out of the pages that they were entered in.
local function leave_pages(by_page)
    for page, gone in pairs(by_page) do
        local left = {}
        for id in string.gmatch(call('GET', P .. 'page:' .. page) or '', '%S+') do
            if not gone[id] then left[#left + 1] = id end
        end
        if #left > 0 then
            call('SET', P .. 'page:' .. page, table.concat(left, ' ') .. ' ')
        else
            call('DEL', P .. 'page:' .. page)
            call('ZREM', P .. 'pages', page)
        end
        -- Places only grow: nothing is appended to a page that has shrunk.
        if call('HGET', META, 'page') == page then call('HDEL', META, 'page') end
    end
end

-- Forgets runs that are in no index of waiting or running ones any more.
local function forget(ids)
    if #ids == 0 then return end
    local by_page = {}
    for i, body in ipairs(get_many(RUNS, ids)) do
        local page = format('%d', math.floor(unpack_from('>I8', body, PLACE_AT) / PLACES))
        by_page[page] = by_page[page] or {}
        by_page[page][ids[i]] = true
        if bit.band(byte(body, TRAITS_AT), RANGED) ~= 0 then
            call('ZREM', P .. 'ranges:' .. read_body(body).uid, ids[i])
        end
    end
    leave_pages(by_page)
    call_many('HDEL', RUNS, ids)
    call_many('HDEL', LIVES, ids)
    call_many('HDEL', P .. 'attempts', ids)
    tell_ended(ids)
end

-- Deletes a waiting run.
local function delete_waiting(id, run, life)
    take_out(id, run, life)
    delist(id, run)
    if life then call('SREM', TOUCHED, id) end
    leave_node(id, run.lane)
    call('HINCRBY', P .. 'depths', 'w' .. (queue_of(run.lane)), -1)
    release(id, run)
    forget({ id })
end
