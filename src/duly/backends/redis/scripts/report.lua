--! use run_records
--! const HEAD '>I8I8I8I8I4I4'
-- report: stores the progress of running attempts, and appends lines to the logs of their runs.
--
-- ARGV, ten for each report: id, fence (8 bytes), progress (msgpack, '' for none), lines written before these, number of
-- lines, their bytes, how many lines to keep, how many bytes to keep, attempt, lines ('' for none). At most 100 reports.
-- A log is a list of chunks. Each begins with the number of its last line, the bytes of the run up to it, the fence, the
-- lines of the attempt up to it, how many lines are kept, and the attempt (`_HEAD` in reporting.py).
-- Returns a 1 for each report whose fence is valid, and a 0 for each other.
local function append(id, at)
    local key, fence = P .. 'lines:' .. id, unpack_from('>I8', ARGV[at + 1])
    local written, count = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local newest, number, size, known = call('LINDEX', key, -1), 0, 0, 0
    if newest then
        local last_fence, last_written
        number, size, last_fence, last_written = unpack_from(HEAD, newest)
        if last_fence == fence then known = last_written end
    end
    if written < known then return end -- these lines are there already
    number, size = number + written - known + count, size + tonumber(ARGV[at + 5])
    local head = pack(HEAD, number, size, fence, written + count, tonumber(ARGV[at + 6]), tonumber(ARGV[at + 8]))
    call('RPUSH', key, head .. ARGV[at + 9])
    local out_number, out_size = number - tonumber(ARGV[at + 6]), size - tonumber(ARGV[at + 7])
    while true do
        local oldest = call('LINDEX', key, 0)
        if not oldest then break end
        local its_number, its_size = unpack_from(HEAD, oldest)
        if its_number > out_number and its_size > out_size then break end
        call('LPOP', key)
    end
end

local replies = {}
for at = 1, #ARGV, 10 do
    local id = ARGV[at]
    local text = call('HGET', STATUSES, id)
    local valid = text and byte(text, 2) >= RUNNING and sub(text, 5, 12) == ARGV[at + 1]
    if valid then
        if ARGV[at + 2] ~= '' and byte(text, 2) == RUNNING then
            local status = read_status(text)
            status.progress = ARGV[at + 2]
            if status.flags % ONLY_HELD < HAS_PROGRESS then status.flags = status.flags + HAS_PROGRESS end
            store_status(id, status)
        end
        if ARGV[at + 9] ~= '' then append(id, at) end
    end
    replies[#replies + 1] = valid and 1 or 0
end
return replies
