--! use tallying
-- tally: adds up what was noted of settled runs of many jobs.
--
-- ARGV: how many rows are enough. Returns how much is left; a repeat goes on with that.
add_up(tonumber(ARGV[1]))
return call('LLEN', P .. 'tallies')
