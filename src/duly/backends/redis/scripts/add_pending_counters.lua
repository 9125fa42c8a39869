--! use job_counters
-- add_pending_counters: counts settlements that were stored to be counted later.
--
-- ARGV: how many rows are enough. Returns how much is left; a repeat continues with that.
add_pending_counters(tonumber(ARGV[1]))
return call('LLEN', P .. 'tallies')
