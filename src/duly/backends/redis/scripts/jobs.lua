-- jobs: the records of jobs, all or of the given names. Changes nothing.
--
-- ARGV: names. Without any, all of them as a flat list of name and record; else the records in order, nil where none is.
if #ARGV == 0 then return redis.call('HGETALL', KEYS[1] .. 'jobs') end
return redis.call('HMGET', KEYS[1] .. 'jobs', unpack(ARGV))
