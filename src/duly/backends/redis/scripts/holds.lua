-- holds: how many runs are held, by key, as a flat list. Changes nothing.
return redis.call('HGETALL', KEYS[1] .. 'holds')
