--! use dozing
-- doze: notes that somebody goes to sleep, unless the bell was rung since it was heard last.
--
-- ARGV: the bell as it was heard, an even number. Returns it as it is: if that differs, nothing was noted.
-- A repeat notes it once.
return doze(tonumber(ARGV[1]))
