--! use clock read_runs
-- read_runs: runs as they are stored. Changes nothing.
--
-- ARGV: now or '', ids (msgpack), at most 1,000. Returns now, and what the function `read_runs` returns.
return { (now_or(ARGV[1])), read_runs(cmsgpack.unpack(ARGV[2])) }
