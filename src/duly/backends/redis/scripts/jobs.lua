-- jobs: the names of all jobs, or the records of the given ones. Changes nothing.
--
-- ARGV: names. Without any, the names in no order; else the records in order, nil where none is.
if #ARGV == 0 then return redis.call('HKEYS', KEYS[1] .. 'jobs') end
return redis.call('HMGET', KEYS[1] .. 'jobs', unpack(ARGV))
