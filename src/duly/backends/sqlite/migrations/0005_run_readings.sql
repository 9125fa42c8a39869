-- Held runs by ready time, for listings in that order. {ns} is the namespace.
CREATE INDEX {ns}_held_ready ON {ns}_held (ready_at, id);
