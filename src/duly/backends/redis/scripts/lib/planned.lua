--! use record rosters
-- What only some of the runs that are added need.
--! const PLAN_BYTES 1024

-- Puts runs on the rosters of their jobs. What does not wait any more is struck from a roster that has grown long.
local function enter_plans(planned)
    local jobs, texts = {}, {}
    for job in pairs(planned) do jobs[#jobs + 1] = job end
    for i, text in ipairs(get_many(P .. 'plans', jobs)) do
        if text and #text > PLAN_BYTES then
            local waiting, ids = nil, roster_ids(text)
            local bodies, lives = get_many(RUNS, ids), get_many(LIVES, ids)
            for k, id in ipairs(ids) do
                if bodies[k] and not (lives[k] and byte(lives[k], 2) ~= PENDING) then
                    waiting = (waiting or ' ') .. id .. ' '
                end
            end
            text = waiting
        end
        texts[i * 2 - 1] = jobs[i]
        texts[i * 2] = (text or ' ') .. table.concat(planned[jobs[i]], ' ') .. ' '
    end
    call_many('HSET', P .. 'plans', texts)
end

-- Adds words to one of several lists.
local function push(lists, name, ...)
    local list = lists[name]
    if not list then
        list = {}
        lists[name] = list
    end
    for i = 1, select('#', ...) do list[#list + 1] = (select(i, ...)) end
end
