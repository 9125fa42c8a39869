-- The first schema. {ns} is the namespace.
--
-- A run's record is written once, into runs. Where the run stands is told by the one other table that it is in:
--   waiting   may start when its time has come; "entering" as long as its group has not let it in
--   held      out of the line, under a hold
--   claims    lent to a node: running
--   ended     has its final state
-- So claiming and settling move narrow rows and leave the wide ones alone, a heartbeat touches claims only, and what
-- has ended costs the living nothing. A move deletes the row of one table and inserts that of the other in one
-- transaction: whoever deleted it has made the move, everybody else finds it gone.
--
-- Instants are microseconds since the Unix epoch. Texts compare byte by byte, so that ids sort like their instants.
-- A line is the name of a queue, or "queue@node" for runs assigned to one node; rank is 500 - priority.

CREATE SEQUENCE {ns}.fences AS BIGINT;

CREATE TABLE {ns}.queues (
    name TEXT COLLATE "C" PRIMARY KEY,
    paused BOOLEAN NOT NULL
);

-- seq is the order of creation. policy is JSON, NULL where it is the default. extra is JSON: what few runs have, and
-- what earlier attempts left behind. Texts that people write are in JSON or bytes, since TEXT takes no zero byte.
CREATE TABLE {ns}.runs (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    due BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    until BIGINT,
    rank INTEGER NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    handler TEXT COLLATE "C" NOT NULL,
    line TEXT COLLATE "C" NOT NULL,
    cause TEXT COLLATE "C" NOT NULL,
    "group" TEXT COLLATE "C",
    policy TEXT COLLATE "C",
    extra TEXT COLLATE "C",
    payload BYTEA NOT NULL
);
CREATE UNIQUE INDEX runs_id ON {ns}.runs (id);
CREATE INDEX runs_job ON {ns}.runs (job, seq);
CREATE INDEX runs_until ON {ns}.runs (id, until) WHERE until IS NOT NULL;

-- "group" is set for members and for those that are to become members.
CREATE TABLE {ns}.waiting (
    seq BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    rank INTEGER NOT NULL,
    entering BOOLEAN NOT NULL,
    line TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    "group" TEXT COLLATE "C",
    PRIMARY KEY (line, rank, ready_at, id)
);
CREATE INDEX waiting_group ON {ns}.waiting ("group", entering, ready_at) WHERE "group" IS NOT NULL;
CREATE INDEX waiting_entering ON {ns}.waiting (ready_at, id) WHERE entering;

CREATE TABLE {ns}.held (
    seq BIGINT NOT NULL,
    ready_at BIGINT NOT NULL,
    rank INTEGER NOT NULL,
    member BOOLEAN NOT NULL,
    hold TEXT COLLATE "C" NOT NULL,
    line TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    "group" TEXT COLLATE "C",
    PRIMARY KEY (hold, rank, ready_at, id)
);
CREATE UNIQUE INDEX held_run ON {ns}.held (seq);
CREATE INDEX held_member ON {ns}.held ("group") WHERE member;

-- One claim per run, by construction. keyed tells that there is a dedupe key to give back. reason and progress are JSON.
CREATE TABLE {ns}.claims (
    seq BIGINT PRIMARY KEY,
    fence BIGINT NOT NULL,
    request BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    cancelling BOOLEAN NOT NULL DEFAULT false,
    keyed BOOLEAN NOT NULL DEFAULT false,
    node TEXT COLLATE "C" NOT NULL,
    "group" TEXT COLLATE "C",
    reason TEXT COLLATE "C",
    progress TEXT COLLATE "C"
);
CREATE INDEX claims_expiry ON {ns}.claims (expires_at);
CREATE INDEX claims_group ON {ns}.claims ("group") WHERE "group" IS NOT NULL;

-- story is JSON: what a success at the first try has not.
CREATE TABLE {ns}.ended (
    seq BIGINT PRIMARY KEY,
    finished_at BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    request BIGINT NOT NULL,
    started_at BIGINT,
    state TEXT COLLATE "C" NOT NULL,
    node TEXT COLLATE "C",
    story TEXT COLLATE "C",
    result BYTEA
);
CREATE INDEX ended_state ON {ns}.ended (state, finished_at);

CREATE TABLE {ns}.attempts (
    seq BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    number INTEGER NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    failure TEXT COLLATE "C",
    PRIMARY KEY (seq, fence)
);

-- The dedupe keys of unfinished runs.
CREATE TABLE {ns}.keys (
    handler TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (handler, key)
);
CREATE INDEX keys_run ON {ns}.keys (id);

-- How many runs ended in a state since the store began, and how many of them are still kept; by who counted, so that
-- nodes do not wait for each other.
CREATE TABLE {ns}.totals (
    state TEXT COLLATE "C" NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    ended BIGINT NOT NULL,
    kept BIGINT NOT NULL,
    PRIMARY KEY (state, node)
) WITH (fillfactor = 50);

CREATE TABLE {ns}.statistics (
    job TEXT COLLATE "C" NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    completed BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    retried BIGINT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    last_run_at BIGINT NOT NULL,
    last_outcome TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job, node)
) WITH (fillfactor = 50);

-- Definitions. record is JSON, but for what is in plans; blocked is what duly.model says about it.
CREATE TABLE {ns}.jobs (
    name TEXT COLLATE "C" PRIMARY KEY,
    blocked BOOLEAN NOT NULL,
    record TEXT COLLATE "C" NOT NULL
);
CREATE INDEX jobs_blocked ON {ns}.jobs (name) WHERE blocked;

-- How far each job is planned: what firing compares and moves. plannable is what duly.model says about the job.
CREATE TABLE {ns}.plans (
    name TEXT COLLATE "C" PRIMARY KEY,
    revision BIGINT NOT NULL,
    cursor BIGINT,
    plan_at BIGINT,
    planned BIGINT NOT NULL,
    plannable BOOLEAN NOT NULL,
    uid TEXT COLLATE "C" NOT NULL,
    shard TEXT COLLATE "C" NOT NULL
);
CREATE INDEX plans_due ON {ns}.plans (shard, plan_at, name) WHERE plannable AND plan_at IS NOT NULL;

CREATE TABLE {ns}.epochs (
    shard TEXT COLLATE "C" PRIMARY KEY,
    epoch BIGINT NOT NULL
);

-- Which handlers nodes have: sets named by their digest, told once instead of with every claim. The one without a name
-- is there for every set that is known.
CREATE TABLE {ns}.staff (
    digest TEXT COLLATE "C" NOT NULL,
    handler TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (digest, handler)
);

-- The last call of each node that lent something.
CREATE TABLE {ns}.requests (
    node TEXT COLLATE "C" PRIMARY KEY,
    request BIGINT NOT NULL,
    at BIGINT NOT NULL
) WITH (fillfactor = 50);

-- When somebody last reached the store, and until when nothing is reaped. One row.
CREATE TABLE {ns}.pulse (
    beat BIGINT NOT NULL,
    spared_until BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO {ns}.pulse (beat, spared_until) VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 0);

-- A lease that was given back stays for a while without a holder, so that its next fence is taken under its lock. node
-- and metrics are JSON; metrics is what was said since the node announced itself.
CREATE TABLE {ns}.leases (
    name TEXT COLLATE "C" PRIMARY KEY,
    holder TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {ns}.nodes (
    id TEXT COLLATE "C" PRIMARY KEY,
    expires_at BIGINT NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    metrics TEXT COLLATE "C"
) WITH (fillfactor = 50);

CREATE TABLE {ns}.shared (
    key TEXT COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL,
    version BIGINT NOT NULL
);

CREATE TABLE {ns}.items (
    kind TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE TABLE {ns}.log (
    log TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    at BIGINT NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (log, sequence)
);

CREATE TABLE {ns}.buckets (
    bucket TEXT COLLATE "C" PRIMARY KEY,
    level DOUBLE PRECISION NOT NULL,
    at BIGINT NOT NULL
) WITH (fillfactor = 50);

-- Small tables through which everything passes: their dead rows are swept away early.
ALTER TABLE {ns}.waiting SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
ALTER TABLE {ns}.claims SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- For people with a SQL prompt: every run in words.
CREATE VIEW {ns}.overview AS
SELECT
    r.id,
    r.job,
    r.handler,
    coalesce(e.state, CASE WHEN c.seq IS NOT NULL THEN 'running' ELSE 'waiting' END) AS state,
    h.hold,
    split_part(r.line, '@', 1) AS queue,
    nullif(split_part(r.line, '@', 2), '') AS assignee,
    500 - r.rank AS priority,
    to_timestamp(r.due / 1e6) AS due,
    to_timestamp(r.ready_at / 1e6) AS ready_at,
    to_timestamp(coalesce(c.started_at, e.started_at) / 1e6) AS started_at,
    to_timestamp(e.finished_at / 1e6) AS finished_at,
    coalesce(c.node, e.node) AS node,
    e.story,
    encode(r.payload, 'escape') AS payload,
    encode(e.result, 'escape') AS result
FROM {ns}.runs AS r
LEFT JOIN {ns}.held AS h ON h.seq = r.seq
LEFT JOIN {ns}.claims AS c ON c.seq = r.seq
LEFT JOIN {ns}.ended AS e ON e.seq = r.seq;
