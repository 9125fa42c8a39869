-- pause: stops claims from a queue. ARGV: the queue. Returns 0 if it was paused before.
return redis.call('SADD', KEYS[1] .. 'paused', ARGV[1])
