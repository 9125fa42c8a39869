--! use waiting notify
-- hold: takes waiting runs out of their indexes and holds them under a key.
--
-- ARGV: the key, ids (msgpack). At most 500 a call. A run that is unknown, running, final or held stays as it is; a repeat
-- holds none. Returns the ids that are held now.
local taken = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[2])) do
    local run, status = load_run(id)
    if run and not (status and (status.state ~= PENDING or status.hold)) then
        remove_from_index(id, run, status)
        hold(id, run, status, ARGV[1])
        taken[#taken + 1] = id
    end
end
if unheld > 0 then notify() end
return taken
