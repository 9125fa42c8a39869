-- Dedupe keys that stay with a run for a time, whatever becomes of it. {ns} is the namespace. A key of an unfinished run
-- is in keys besides, as before; a row here counts until its time has passed. Whoever writes one has taken the key first.
CREATE TABLE {ns}.unique_keys (
    created_at BIGINT NOT NULL,
    until BIGINT NOT NULL,
    handler TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (handler, key)
);
CREATE INDEX unique_keys_until ON {ns}.unique_keys (until);
