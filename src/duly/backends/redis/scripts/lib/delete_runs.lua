--! use waiting
-- Deleting runs: their records, their history, and their place in the order of creation.

-- Removes ids from their pages: a table from page to the set of its ids.
local function remove_from_pages(by_page)
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
        -- Places must only grow, so nothing is appended to a page that has shrunk.
        if call('HGET', META, 'page') == page then call('HDEL', META, 'page') end
    end
end

-- Deletes the records of runs that are in no index of waiting or running ones.
local function delete_records(ids)
    if #ids == 0 then return end
    local by_page, jobs = {}, {}
    for i, body in ipairs(get_many(RUNS, ids)) do
        local _, job = read_head(ids[i], body)
        if job then jobs[job] = true end
        local page = format('%d', math.floor(unpack_from('>I8', body, PLACE_AT) / PLACES))
        by_page[page] = by_page[page] or {}
        by_page[page][ids[i]] = true
        if bit.band(byte(body, TRAITS_AT), RANGED) ~= 0 then
            call('ZREM', P .. 'ranges:' .. read_body(body).uid, ids[i])
        end
    end
    remove_from_pages(by_page)
    call_many('HDEL', RUNS, ids)
    call_many('HDEL', STATUSES, ids)
    call_many('HDEL', P .. 'attempts', ids)
    local logs = {}
    for i, id in ipairs(ids) do logs[i] = P .. 'lines:' .. id end
    call_many('DEL', P .. 'lines:', logs) -- the first name is that of no run
    for job in pairs(jobs) do drop_deleted(job) end
    publish_ended(ids)
end

-- Deletes a waiting run.
local function delete_waiting(id, run, status)
    remove_from_index(id, run, status)
    remove_from_job(id, run)
    if status then call('SREM', TOUCHED, id) end
    remove_from_node(id, run.queue_key)
    call('HINCRBY', P .. 'depths', 'w' .. (split_queue_key(run.queue_key)), -1)
    free_reservations(id, run)
    delete_records({ id })
end
