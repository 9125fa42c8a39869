-- identify: what the client asks on each new connection. The streams may be lost at any time, so any server is accepted.
-- ARGV: the incarnation we know, its greatest fence, an id for a new one, its number, counts. Returns the same, and no loss.
return { ARGV[1], tonumber(ARGV[4]), 0, '', 0, 0 }
