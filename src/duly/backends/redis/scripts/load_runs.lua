--! use delete_runs creation_pages
-- load_runs: stores runs of another store as they are, without a consequence for others. A run that exists is replaced.
--
-- ARGV: for each run: id, ready time, job, time of creation, state, time of its end, '1' if it is a member of its group, its
-- body from `traits` on, its status ('' for none), and its attempts ('' for none). Runs under a hold have a status.
local function unload(id)
    local run, status = load_run(id)
    if not run then return end
    if status and status.state > RUNNING then
        call('ZREM', P .. 'ended:' .. status.state, id)
    else
        remove_from_index(id, run, status)
        remove_from_job(id, run)
        call('SREM', TOUCHED, id)
        call('HINCRBY', P .. 'depths', 'w' .. (split_queue_key(run.queue_key)), -1)
        if run.group then remove_from_list(GROUPS, run.group, id) end
        if run.dedupe then call('HDEL', P .. 'dedupe', run.handler .. '\0' .. run.dedupe) end
    end
    delete_records({ id })
end

for i = 1, #ARGV, 10 do
    local id, ready, state, status = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 4]), ARGV[i + 8]
    unload(id)
    if ARGV[i + 7] ~= '' then
        local head = pack('>BBBBI8BI8', 0xdc, 0, 21, 0xcf, tonumber(ARGV[i + 3]), 0xcf, append_to_page(id .. ' '))
        local body = head .. ARGV[i + 7]
        local run = read_body(body)
        call('HSET', RUNS, id, body)
        if status ~= '' then call('HSET', STATUSES, id, status) end
        if ARGV[i + 9] ~= '' then call('HSET', P .. 'attempts', id, ARGV[i + 9]) end
        if bit.band(run.traits, RANGED) ~= 0 then call('ZADD', P .. 'ranges:' .. run.uid, run.due, id) end
        if state > RUNNING then
            call('ZADD', P .. 'ended:' .. state, ARGV[i + 5], id)
        else
            call('HINCRBY', P .. 'depths', 'w' .. (split_queue_key(run.queue_key)), 1)
            add_to_job(id, run)
            if run.dedupe then call('HSET', P .. 'dedupe', run.handler .. '\0' .. run.dedupe, id) end
            if ARGV[i + 6] == '1' then add_to_list(GROUPS, run.group, id) end
            if status ~= '' then call('SADD', TOUCHED, id) end
            local hold = status ~= '' and read_status(status).hold
            local priority = sub(run.queue_key, 1, 1)
            if hold then
                call('ZADD', held_key(priority, hold), ready, id)
                count_held(hold, 1)
            else
                add_pending(id, priority, body, ready)
            end
        end
    end
end
