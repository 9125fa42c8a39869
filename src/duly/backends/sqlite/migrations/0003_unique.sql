-- Dedupe keys that stay with a run for a time, whatever becomes of it. {ns} is the namespace. A key of an unfinished run
-- is in {ns}_keys besides, as before; a row here counts until its time has passed.
CREATE TABLE {ns}_unique (
    handler TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (handler, key)
) WITHOUT ROWID;
CREATE INDEX {ns}_unique_until ON {ns}_unique (until);
