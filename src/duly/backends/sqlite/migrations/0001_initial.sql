-- The first schema. {ns} is the namespace.
--
-- A run's record is written once, into {ns}_runs. Where the run stands is told by the one other table that it is in:
--   {ns}_waiting   may start when its time has come: it has no group, or is a member of it
--   {ns}_entrants  waits to enter its group
--   {ns}_held      out of the line, under a hold
--   {ns}_claims    lent to a node: running
--   {ns}_ended     has its final state
-- So claiming and settling move narrow rows and leave the wide ones alone, and what has ended costs the living nothing.
-- Instants are microseconds since the Unix epoch.

CREATE TABLE {ns}_meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE {ns}_queues (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX {ns}_queues_paused ON {ns}_queues (number) WHERE paused = 1;

-- What many runs have in common, kept once. Numbers are never taken back: other processes remember them.
CREATE TABLE {ns}_policies (
    number INTEGER PRIMARY KEY,
    policy TEXT NOT NULL UNIQUE
);
CREATE TABLE {ns}_kinds (
    number INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    handler TEXT NOT NULL,
    cause TEXT NOT NULL,
    "limit" INTEGER NOT NULL,
    when_full TEXT NOT NULL,
    policy INTEGER NOT NULL,
    UNIQUE (job, handler, cause, "limit", when_full, policy)
);

-- seq is the order of creation. line is queue number * 1000 + 500 - priority: what is to be claimed together, in order.
-- extra is JSON: what few runs have, and what earlier attempts left behind. payload is last, it may overflow the page.
CREATE TABLE {ns}_runs (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    line INTEGER NOT NULL,
    due INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    "group" TEXT,
    extra TEXT,
    until INTEGER,
    payload BLOB NOT NULL
);
CREATE UNIQUE INDEX {ns}_runs_id ON {ns}_runs (id);
CREATE INDEX {ns}_runs_kind ON {ns}_runs (kind);
CREATE INDEX {ns}_runs_until ON {ns}_runs (id, until) WHERE until IS NOT NULL;

-- "group" is set for members only.
CREATE TABLE {ns}_waiting (
    line INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    "group" TEXT,
    PRIMARY KEY (line, ready_at, id)
) WITHOUT ROWID;
CREATE INDEX {ns}_waiting_group ON {ns}_waiting ("group") WHERE "group" IS NOT NULL;

CREATE TABLE {ns}_entrants (
    line INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    "group" TEXT NOT NULL,
    PRIMARY KEY (line, ready_at, id)
) WITHOUT ROWID;
CREATE INDEX {ns}_entrants_group ON {ns}_entrants ("group", ready_at);

-- rank is 500 - priority: the order in which held runs come back.
CREATE TABLE {ns}_held (
    hold TEXT NOT NULL,
    rank INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    line INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    "group" TEXT,
    member INTEGER NOT NULL,
    PRIMARY KEY (hold, rank, ready_at, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX {ns}_held_run ON {ns}_held (seq);
CREATE INDEX {ns}_held_member ON {ns}_held ("group") WHERE member = 1;

-- One claim per run, by construction. "group" is set for members only; keyed tells that there is a dedupe key to give
-- back.
CREATE TABLE {ns}_claims (
    seq INTEGER PRIMARY KEY,
    fence INTEGER NOT NULL,
    node TEXT NOT NULL,
    request INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    cancelling INTEGER NOT NULL DEFAULT 0,
    keyed INTEGER NOT NULL DEFAULT 0,
    "group" TEXT,
    reason TEXT,
    progress TEXT
);
CREATE INDEX {ns}_claims_expiry ON {ns}_claims (expires_at);
CREATE INDEX {ns}_claims_group ON {ns}_claims ("group") WHERE "group" IS NOT NULL;

CREATE TABLE {ns}_ended (
    seq INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    finished_at INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    node TEXT,
    request INTEGER NOT NULL,
    started_at INTEGER,
    failures INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    progress TEXT,
    failure TEXT,
    result BLOB
);
CREATE INDEX {ns}_ended_state ON {ns}_ended (state, finished_at);

CREATE TABLE {ns}_attempts (
    seq INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    number INTEGER NOT NULL,
    node TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    failure TEXT,
    PRIMARY KEY (seq, fence)
) WITHOUT ROWID;

-- The dedupe keys of unfinished runs.
CREATE TABLE {ns}_keys (
    handler TEXT NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (handler, key)
) WITHOUT ROWID;
CREATE UNIQUE INDEX {ns}_keys_run ON {ns}_keys (seq);

-- How many runs ended in a state since the store began, and how many of them are still kept.
CREATE TABLE {ns}_totals (
    state TEXT PRIMARY KEY,
    ended INTEGER NOT NULL,
    kept INTEGER NOT NULL
) WITHOUT ROWID;

-- One row per job: a file has one writer at a time, so nodes need no counters of their own.
CREATE TABLE {ns}_statistics (
    job TEXT PRIMARY KEY,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    seconds REAL NOT NULL,
    last_run_at INTEGER NOT NULL,
    last_outcome TEXT NOT NULL
) WITHOUT ROWID;

-- Definitions. record is JSON, but for what is in {ns}_plans; blocked is what duly.model says about it.
CREATE TABLE {ns}_jobs (
    name TEXT PRIMARY KEY,
    blocked INTEGER NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX {ns}_jobs_blocked ON {ns}_jobs (name) WHERE blocked = 1;

-- How far each job is planned: what firing compares and moves. plannable is what duly.model says about the job.
CREATE TABLE {ns}_plans (
    name TEXT PRIMARY KEY,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    shard TEXT NOT NULL,
    cursor INTEGER,
    plan_at INTEGER,
    planned INTEGER NOT NULL,
    plannable INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX {ns}_plans_due ON {ns}_plans (shard, plan_at, name) WHERE plannable = 1 AND plan_at IS NOT NULL;

CREATE TABLE {ns}_epochs (
    shard TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL
) WITHOUT ROWID;

-- The last call of each node that lent something.
CREATE TABLE {ns}_requests (
    node TEXT PRIMARY KEY,
    request INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE {ns}_leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    fence INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE {ns}_nodes (
    id TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    node TEXT NOT NULL
);

CREATE TABLE {ns}_shared (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    version INTEGER NOT NULL
);

CREATE TABLE {ns}_items (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE TABLE {ns}_log (
    log TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (log, sequence)
) WITHOUT ROWID;

CREATE TABLE {ns}_buckets (
    bucket TEXT PRIMARY KEY,
    level REAL NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- For people with a SQL prompt: every run in words.
CREATE VIEW {ns}_overview AS
SELECT
    r.id,
    k.job,
    k.handler,
    CASE
        WHEN e.seq IS NOT NULL THEN e.state
        WHEN c.seq IS NOT NULL THEN 'running'
        ELSE 'waiting'
    END AS state,
    h.hold,
    q.name AS queue,
    500 - r.line % 1000 AS priority,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.due / 1e6, 'unixepoch') AS due,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.ready_at / 1e6, 'unixepoch') AS ready_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(c.started_at, e.started_at) / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', e.finished_at / 1e6, 'unixepoch') AS finished_at,
    coalesce(c.node, e.node) AS node,
    coalesce(c.reason, e.reason) AS reason,
    CAST(r.payload AS TEXT) AS payload,
    CAST(e.result AS TEXT) AS result
FROM {ns}_runs AS r
INNER JOIN {ns}_kinds AS k ON k.number = r.kind
INNER JOIN {ns}_queues AS q ON q.number = r.line / 1000
LEFT JOIN {ns}_held AS h ON h.seq = r.seq
LEFT JOIN {ns}_claims AS c ON c.seq = r.seq
LEFT JOIN {ns}_ended AS e ON e.seq = r.seq;
