--! use record ring entering
--! lazily waiting planned unique
-- Adding runs: one variadic call per index and batch.

--! const PAGE_BYTES 4096

-- Notes ids in the order of their creation. Returns their common place: the page and how far down it they begin, in one
-- number that grows from call to call. A full page is left alone; one that lost entries is not gone on with (`forget`).
local function enter_page(ids)
    local page = call('HGET', META, 'page')
    if not page then
        page = call('HINCRBY', META, 'pages', 1)
        call('HSET', META, 'page', page)
        call('ZADD', P .. 'pages', page, page)
    end
    local text = table.concat(ids, ' ') .. ' '
    local filled = call('APPEND', P .. 'page:' .. page, text)
    if filled > PAGE_BYTES then
        call('HDEL', META, 'page')
        call('SET', P .. 'page:' .. page, call('GET', P .. 'page:' .. page)) -- appending leaves room behind the text
    end
    return page * PLACES + filled - #text
end

-- Adds the runs that duplicate nothing. `list` is flat: id, ready time, lane, job and the length of its part of `parts`,
-- which are bodies from `traits` on; one without a job (false) is left out; `odd` has state and reason of those that ended
-- before they began, state and hold of those that are held, and third for how long a dedupe key is unique.
-- Returns how many were added, a table from their number in the list to the id that stands in their way, and when those of
-- them were created that may be gone.
local function add_runs(list, parts, odd, now)
    local n = #list / 5
    if n == 0 then return 0, {}, {} end
    local ids = {}
    for i = 1, n do ids[i] = list[i * 5 - 4] end
    local present = get_many(RUNS, ids)
    local bodies, lives, added, refused, created = {}, {}, {}, {}, {}
    local ready_sets, waiting, submitted, planned, depths, ended, held, seen = {}, {}, {}, {}, {}, {}, {}, {}
    local earliest, at, b = nil, 1, 0
    for i = 1, n do
        local k = i * 5
        local id, ready, lane, job, length = list[k - 4], list[k - 3], list[k - 2], list[k - 1], list[k]
        local rest = sub(parts, at, at + length - 1)
        at = at + length
        local traits = byte(rest)
        local twin = (present[i] or seen[id]) and id or not job and ''
        local run
        if traits ~= 0 and not twin then
            run = lazily().read_body(string.rep('\0', TRAITS_AT - 1) .. rest)
            if run.dedupe then
                local made_at
                twin, made_at = lazily().twin_of(run, now)
                if made_at then created[twin] = made_at end
                if not twin and traits % HELD < FINAL then lazily().take_key(id, run, odd[id] and odd[id][3], now) end
            end
        end
        if twin then
            refused[i] = twin
        else
            seen[id] = true
            added[#added + 1] = id
            bodies[b + 1] = id
            bodies[b + 2] = rest
            b = b + 2
            if traits % HELD >= FINAL then
                local life = lazily().new_life(ready)
                life.state, life.reason, life.finished = odd[id][1], odd[id][2] or nil, now
                lazily().push(lives, 1, id, lazily().write_life(life))
                lazily().push(ended, life.state, now, id)
                if run.group then lazily().pass_on(run.group) end
            else
                depths[lane] = (depths[lane] or 0) + 1
                if traits % TIMED >= HELD then
                    local life = lazily().new_life(ready)
                    life.flags, life.hold = FRESH, odd[id][2]
                    lazily().push(lives, 1, id, lazily().write_life(life))
                    lazily().push(held, life.hold, byte(lane) - 48, ready, id)
                else
                    local mark = run and run.mark or ''
                    if ready > now or (traits ~= 0 and run.group) then
                        enter(waiting, mark .. sub(lane, 1, 1), ready, id)
                        if not earliest or ready < earliest then earliest = ready end
                    else
                        enter(ready_sets, mark .. lane, ready, id)
                    end
                end
                local lists = traits % RANGED >= SCHEDULED and planned or submitted
                local names = lists[job]
                if not names then
                    names = {}
                    lists[job] = names
                end
                names[#names + 1] = id
            end
            if run and bit.band(traits, RANGED) ~= 0 then call('ZADD', P .. 'ranges:' .. run.uid, run.due, id) end
        end
    end
    if b == 0 then return 0, refused, created end
    local head = pack('>BBBBI8BI8', 0xdc, 0, 21, 0xcf, now, 0xcf, enter_page(added))
    for i = 2, b, 2 do bodies[i] = head .. bodies[i] end
    call_many('HSET', RUNS, bodies)
    if lives[1] then call_many('HSET', LIVES, lives[1]) end
    for state, entries in pairs(ended) do
        call_many('ZADD', P .. 'ended:' .. state, entries)
        lazily().count_ended(state, #entries / 2)
    end
    for job, members in pairs(submitted) do call_many('SADD', P .. 'job:' .. job, members) end
    if next(planned) ~= nil then lazily().enter_plans(planned) end
    for lane, count in pairs(depths) do call('HINCRBY', P .. 'depths', 'w' .. (queue_of(lane)), count) end
    local urgent = next(ready_sets) ~= nil
    for key, entries in pairs(held) do
        lazily().hold_new(key, entries)
        urgent = true -- somebody may wait for them, to put them back
    end
    for lane, entries in pairs(ready_sets) do
        call_many('ZADD', P .. 'ready:' .. lane, entries)
        call('SADD', P .. 'lanes', lane)
    end
    if earliest then
        urgent = lazily().is_first(earliest) or urgent
        for level, entries in pairs(waiting) do
            call_many('ZADD', WAITING .. level, entries)
            call('SADD', P .. 'levels', level)
        end
    end
    if urgent or (made and made.times_put_back() > 0) then ring() end
    return #added, refused, created
end
