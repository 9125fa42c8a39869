--! use layout creation_pages notify pair_lists
--! lazy waiting schedule_lists dedupe
-- Adding runs: one variadic call per index and batch. The functions for groups, holds and dedupe keys are loaded lazily:
-- most batches need none of them.

-- Adds the runs that duplicate nothing. `list` is flat: id, ready time, queue key, job, and the length of its part of
-- `parts`, which are bodies from `traits` on. A run without a job (false) is left out. `extras` has, by id: state and
-- reason of a run that has already ended, state and hold of one that is held; third, how long a dedupe key stays unique.
-- Returns a table from the number of a refused run in the list to the id of the existing one, and a table from such an id
-- to its time of creation, for those that may be deleted already.
local function add_runs(list, parts, extras, now)
    local n = #list / 5
    if n == 0 then return {}, {} end
    local ids = {}
    for i = 1, n do ids[i] = list[i * 5 - 4] end
    local present = get_many(RUNS, ids)
    local bodies, statuses, added, refused, created = {}, {}, {}, {}, {}
    local ready_sets, pending_sets, held_sets, ended = {}, {}, {}, {}
    local submitted, scheduled, depths, seen = {}, {}, {}, {}
    local earliest, at, b = nil, 1, 0
    for i = 1, n do
        local k = i * 5
        local id, ready, queue_key, job, length = list[k - 4], list[k - 3], list[k - 2], list[k - 1], list[k]
        local rest = sub(parts, at, at + length - 1)
        at = at + length
        local traits = byte(rest)
        local existing = (present[i] or seen[id]) and id or not job and ''
        local run
        if traits ~= 0 and not existing then
            run = lazy().read_body(string.rep('\0', TRAITS_AT - 1) .. rest)
            if run.dedupe then
                local created_at
                existing, created_at = lazy().duplicate_of(run, now)
                if created_at then created[existing] = created_at end
                if not existing and traits % HELD < FINAL then
                    lazy().take_dedupe_key(id, run, extras[id] and extras[id][3], now)
                end
            end
        end
        if existing then
            refused[i] = existing
        else
            seen[id] = true
            added[#added + 1] = id
            bodies[b + 1] = id
            bodies[b + 2] = rest
            b = b + 2
            if traits % HELD >= FINAL then
                local status = lazy().new_status(ready)
                status.state, status.reason, status.finished = extras[id][1], extras[id][2] or nil, now
                append_pair(statuses, STATUSES, id, lazy().write_status(status))
                append_pair(ended, status.state, now, id)
                if run.group then lazy().offer_place(run.group, true) end
            else
                depths[queue_key] = (depths[queue_key] or 0) + 1
                local of_schedule = traits % RANGED >= SCHEDULED
                if traits % TIMED >= HELD then
                    local status, hold = lazy().new_status(ready), extras[id][2]
                    status.flags, status.hold = ONLY_HELD, hold
                    append_pair(statuses, STATUSES, id, lazy().write_status(status))
                    held_sets[hold] = held_sets[hold] or {}
                    append_pair(held_sets[hold], sub(queue_key, 1, 1), ready, id)
                else
                    local pending = ready > now or (traits ~= 0 and run.group)
                    local name = pending and sub(queue_key, 1, 1) or queue_key
                    if of_schedule then name = lazy().marked(name, run.body) end
                    if pending then
                        append_pair(pending_sets, name, ready, id)
                        if not earliest or ready < earliest then earliest = ready end
                    else
                        append_pair(ready_sets, name, ready, id)
                    end
                end
                local lists = of_schedule and scheduled or submitted
                local members = lists[job]
                if not members then
                    members = {}
                    lists[job] = members
                end
                members[#members + 1] = id
            end
            if run and bit.band(traits, RANGED) ~= 0 then call('ZADD', P .. 'ranges:' .. run.uid, run.due, id) end
        end
    end
    if b == 0 then return refused, created end
    local head = pack('>BBBBI8BI8', 0xdc, 0, 21, 0xcf, now, 0xcf, append_to_page(table.concat(added, ' ') .. ' '))
    for i = 2, b, 2 do bodies[i] = head .. bodies[i] end
    call_many('HSET', RUNS, bodies)
    if statuses[STATUSES] then call_many('HSET', STATUSES, statuses[STATUSES]) end
    for state, members in pairs(ended) do
        call_many('ZADD', P .. 'ended:' .. state, members)
        call('HINCRBY', P .. 'totals', state, #members / 2)
    end
    for job, members in pairs(submitted) do call_many('SADD', P .. 'job:' .. job, members) end
    if next(scheduled) ~= nil then lazy().add_to_schedule_lists(scheduled) end
    for queue_key, count in pairs(depths) do call('HINCRBY', P .. 'depths', 'w' .. (split_queue_key(queue_key)), count) end
    local urgent = next(ready_sets) ~= nil
    for hold, sets in pairs(held_sets) do
        lazy().store_held(hold, sets)
        urgent = true -- a service may wait for them, to release them
    end
    for queue_key, members in pairs(ready_sets) do
        call_many('ZADD', P .. 'ready:' .. queue_key, members)
        call('SADD', P .. 'lanes', queue_key)
    end
    if earliest then
        urgent = lazy().is_earliest(earliest) or urgent
        for name, members in pairs(pending_sets) do
            call_many('ZADD', WAITING .. name, members)
            call('SADD', P .. 'levels', name)
        end
    end
    if urgent or (loaded and loaded.unheld_count() > 0) then notify() end
    return refused, created
end
