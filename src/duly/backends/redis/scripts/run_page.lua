-- run_page: a page of run ids in the order of their creation. Changes nothing.
--
-- ARGV: return the page before this number ('+inf' for the newest). Returns the number of the page ('' if there is none),
-- and its ids in one string, oldest first.
local below = ARGV[1] == '+inf' and '+inf' or '(' .. ARGV[1]
local page = redis.call('ZREVRANGEBYSCORE', KEYS[1] .. 'pages', below, '-inf', 'LIMIT', 0, 1)[1]
if not page then return { '', '' } end
return { page, redis.call('GET', KEYS[1] .. 'page:' .. page) }
