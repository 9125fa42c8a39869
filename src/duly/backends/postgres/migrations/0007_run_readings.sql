-- Held runs by ready time, for listings in that order. {ns} is the namespace.
CREATE INDEX held_ready ON {ns}.held (ready_at, id);
