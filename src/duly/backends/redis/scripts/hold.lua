--! use waiting ring
-- hold: takes waiting runs out of the indexes under a key.
--
-- ARGV: the key, ids (msgpack). What is unknown, running, final or held already stays as it is; a repeat takes nothing.
-- Returns the ids that were taken. At most 500 a call.
local taken = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[2])) do
    local run, life = load_run(id)
    if run and not (life and (life.state ~= PENDING or life.hold)) then
        take_out(id, run, life)
        hold(id, run, life, ARGV[1])
        taken[#taken + 1] = id
    end
end
if put_back > 0 then ring() end
return taken
