CREATE FUNCTION duly.alone(groups text[], at bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (
        SELECT FROM "duly".stripes(groups) AS stripe
        WHERE NOT pg_try_advisory_xact_lock_shared(hashtext('duly groups "duly"'), stripe)
    ) THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT FROM "duly".claims WHERE "group" = ANY(groups))
        AND NOT EXISTS (SELECT FROM "duly".waiting WHERE "group" = ANY(groups) AND NOT entering)
        AND NOT EXISTS (SELECT FROM "duly".held WHERE "group" = ANY(groups) AND member)
        AND cardinality(groups) = (
            SELECT count(*) FROM "duly".waiting WHERE "group" = ANY(groups) AND entering AND ready_at <= at
        );
END
$$;

CREATE FUNCTION duly.lock_groups(groups text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('duly groups "duly"'), stripe) FROM "duly".stripes(groups) AS stripe;
    PERFORM FROM "duly".claims WHERE "group" = ANY(groups) ORDER BY seq FOR UPDATE;
END
$$;

CREATE FUNCTION duly.release(keys text[]) RETURNS bigint
    LANGUAGE plpgsql STRICT
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM "duly".held WHERE hold = ANY(keys)) THEN
        RETURN 0;
    END IF;
    RETURN (
        SELECT sum("duly".unhold(key, places)) FROM (SELECT key, count(*) AS places FROM unnest(keys) AS key GROUP BY key)
        AS freed
    );
END
$$;

CREATE FUNCTION duly.stripes(groups text[]) RETURNS SETOF integer
    LANGUAGE sql STABLE
    AS $$
    SELECT DISTINCT hashtext(name) & 63 AS stripe FROM unnest(groups) AS name ORDER BY stripe
$$;

CREATE FUNCTION duly.unhold(key text, most bigint) RETURNS bigint
    LANGUAGE sql
    AS $$
    WITH first AS MATERIALIZED (
        SELECT seq FROM "duly".held WHERE hold = key ORDER BY rank, ready_at, id LIMIT most FOR UPDATE SKIP LOCKED
    ),
    back AS (
        DELETE FROM "duly".held WHERE seq = ANY(ARRAY(SELECT seq FROM first))
        RETURNING seq, line, rank, ready_at, id, "group", member
    ),
    placed AS (
        INSERT INTO "duly".waiting (seq, line, rank, ready_at, id, "group", entering)
        SELECT seq, line, rank, ready_at, id, "group", "group" IS NOT NULL AND NOT member FROM back
    )
    SELECT count(*) FROM back
$$;

CREATE TABLE duly.attempts (
    seq bigint NOT NULL,
    fence bigint NOT NULL,
    number integer NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    node text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL COLLATE pg_catalog."C",
    failure text COLLATE pg_catalog."C"
);

CREATE TABLE duly.buckets (
    bucket text NOT NULL COLLATE pg_catalog."C",
    level double precision NOT NULL,
    at bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE duly.claims (
    seq bigint NOT NULL,
    fence bigint NOT NULL,
    request bigint NOT NULL,
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    cancelling boolean DEFAULT false NOT NULL,
    keyed boolean DEFAULT false NOT NULL,
    node text NOT NULL COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C",
    reason text COLLATE pg_catalog."C",
    progress text COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');

CREATE TABLE duly.ended (
    seq bigint NOT NULL,
    finished_at bigint NOT NULL,
    fence bigint NOT NULL,
    request bigint NOT NULL,
    started_at bigint,
    state text NOT NULL COLLATE pg_catalog."C",
    node text COLLATE pg_catalog."C",
    story text COLLATE pg_catalog."C",
    result bytea
);

CREATE TABLE duly.epochs (
    shard text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL
);

CREATE SEQUENCE duly.fences
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE duly.held (
    seq bigint NOT NULL,
    ready_at bigint NOT NULL,
    rank integer NOT NULL,
    member boolean NOT NULL,
    hold text NOT NULL COLLATE pg_catalog."C",
    line text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C"
);

CREATE TABLE duly.items (
    kind text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE duly.jobs (
    name text NOT NULL COLLATE pg_catalog."C",
    blocked boolean NOT NULL,
    record text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE duly.keys (
    handler text NOT NULL COLLATE pg_catalog."C",
    key bytea NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE duly.leases (
    name text NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL COLLATE pg_catalog."C",
    fence bigint NOT NULL,
    expires_at bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE duly.log (
    log text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    at bigint NOT NULL,
    value bytea NOT NULL
);

CREATE TABLE duly.nodes (
    id text NOT NULL COLLATE pg_catalog."C",
    expires_at bigint NOT NULL,
    node text NOT NULL COLLATE pg_catalog."C",
    metrics text COLLATE pg_catalog."C"
)
WITH (fillfactor='50');

CREATE TABLE duly.runs (
    seq bigint NOT NULL,
    due bigint NOT NULL,
    ready_at bigint NOT NULL,
    created_at bigint NOT NULL,
    until bigint,
    rank integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    job text NOT NULL COLLATE pg_catalog."C",
    handler text NOT NULL COLLATE pg_catalog."C",
    line text NOT NULL COLLATE pg_catalog."C",
    cause text NOT NULL COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C",
    policy text COLLATE pg_catalog."C",
    extra text COLLATE pg_catalog."C",
    payload bytea NOT NULL
);

CREATE VIEW duly.overview AS
 SELECT r.id,
    r.job,
    r.handler,
    COALESCE(e.state,
        CASE
            WHEN (c.seq IS NOT NULL) THEN 'running'::text
            ELSE 'waiting'::text
        END) AS state,
    h.hold,
    split_part(r.line, '@'::text, 1) AS queue,
    NULLIF(split_part(r.line, '@'::text, 2), ''::text) AS assignee,
    (500 - r.rank) AS priority,
    to_timestamp((((r.due)::numeric / '1000000'::numeric))::double precision) AS due,
    to_timestamp((((r.ready_at)::numeric / '1000000'::numeric))::double precision) AS ready_at,
    to_timestamp((((COALESCE(c.started_at, e.started_at))::numeric / '1000000'::numeric))::double precision) AS started_at,
    to_timestamp((((e.finished_at)::numeric / '1000000'::numeric))::double precision) AS finished_at,
    COALESCE(c.node, e.node) AS node,
    e.story,
    encode(r.payload, 'escape'::text) AS payload,
    encode(e.result, 'escape'::text) AS result
   FROM (((duly.runs r
     LEFT JOIN duly.held h ON ((h.seq = r.seq)))
     LEFT JOIN duly.claims c ON ((c.seq = r.seq)))
     LEFT JOIN duly.ended e ON ((e.seq = r.seq)));

CREATE TABLE duly.plans (
    name text NOT NULL COLLATE pg_catalog."C",
    revision bigint NOT NULL,
    cursor bigint,
    plan_at bigint,
    planned bigint NOT NULL,
    plannable boolean NOT NULL,
    uid text NOT NULL COLLATE pg_catalog."C",
    shard text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE duly.pulse (
    beat bigint NOT NULL,
    spared_until bigint NOT NULL
)
WITH (fillfactor='10');

CREATE TABLE duly.queues (
    name text NOT NULL COLLATE pg_catalog."C",
    paused boolean NOT NULL
);

CREATE TABLE duly.requests (
    node text NOT NULL COLLATE pg_catalog."C",
    request bigint NOT NULL,
    at bigint NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE duly.runs ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME duly.runs_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE duly.schema (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at bigint NOT NULL
);

CREATE TABLE duly.shared (
    key text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE duly.staff (
    digest text NOT NULL COLLATE pg_catalog."C",
    handler text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL
);

CREATE TABLE duly.statistics (
    job text NOT NULL COLLATE pg_catalog."C",
    node text NOT NULL COLLATE pg_catalog."C",
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    lost bigint NOT NULL,
    retried bigint NOT NULL,
    seconds double precision NOT NULL,
    last_run_at bigint NOT NULL,
    last_outcome text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='50');

CREATE TABLE duly.totals (
    state text NOT NULL COLLATE pg_catalog."C",
    node text NOT NULL COLLATE pg_catalog."C",
    ended bigint NOT NULL,
    kept bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE duly.waiting (
    seq bigint NOT NULL,
    ready_at bigint NOT NULL,
    rank integer NOT NULL,
    entering boolean NOT NULL,
    line text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');

INSERT INTO duly.attempts VALUES (2, 1882002328678132, 1, 1794816000000000, 1794816001500000, 'node-1', 'failed', '{"type":"ValueError","message":"Gerät kaputt","traceback":"Traceback (most recent call last):\n  …"}');
INSERT INTO duly.attempts VALUES (3, 1882002328678133, 1, 1794816000000000, 1794816001500000, 'node-1', 'timed_out', '{"type":"TimeoutError","message":"too slow","traceback":""}');
INSERT INTO duly.attempts VALUES (4, 1882002328678134, 1, 1794816000000000, 1794816001500000, 'node-1', 'lost', '{"type":"WorkerVanished","message":"the worker''s lease expired before it settled the run","traceback":""}');
INSERT INTO duly.attempts VALUES (5, 1882002328678135, 1, 1794816000000000, 1794816001500000, 'node-1', 'cancelled', NULL);
INSERT INTO duly.attempts VALUES (2, 1882002328678137, 2, 1794816011500000, 1794816011750000, 'node-2', 'failed', '{"type":"ValueError","message":"Gerät kaputt","traceback":"Traceback (most recent call last):\n  …"}');
INSERT INTO duly.attempts VALUES (3, 1882002328678138, 2, 1794816011500000, 1794816012000000, 'node-2', 'failed', '{"type":"ValueError","message":"Gerät kaputt","traceback":"Traceback (most recent call last):\n  …"}');

INSERT INTO duly.claims VALUES (18, 1882002328678141, 4, 1794816012000000, 1794816027000000, false, false, 'node-3', NULL, NULL, '{"done":3,"total":10,"note":"drei von zehn"}');
INSERT INTO duly.claims VALUES (19, 1882002328678142, 4, 1794816012000000, 1794816027000000, false, false, 'node-3', NULL, NULL, '{"done":0.5,"total":null,"note":""}');
INSERT INTO duly.claims VALUES (20, 1882002328678143, 4, 1794816012000000, 1794816027000000, true, false, 'node-3', NULL, '"by hand"', NULL);

INSERT INTO duly.ended VALUES (1, 1794816001500000, 1882002328678131, 1, 1794816000000000, 'completed', 'node-1', NULL, '\x7b2273656e74223a20747275657d');
INSERT INTO duly.ended VALUES (4, 1794816001500000, 1882002328678134, 1, 1794816000000000, 'lost', 'node-1', '{"reason":"worker vanished","failure":{"type":"WorkerVanished","message":"the worker''s lease expired before it settled the run","traceback":""}}', NULL);
INSERT INTO duly.ended VALUES (5, 1794816001500000, 1882002328678135, 1, 1794816000000000, 'cancelled', 'node-1', NULL, NULL);
INSERT INTO duly.ended VALUES (6, 1794816001500000, 1882002328678136, 1, 1794816000000000, 'completed', 'node-1', '{"reason":"result not kept: 70000 bytes are more than max_result_bytes=65536"}', NULL);
INSERT INTO duly.ended VALUES (2, 1794816011750000, 1882002328678137, 2, 1794816011500000, 'failed', 'node-2', '{"failures":2,"failure":{"type":"ValueError","message":"Gerät kaputt","traceback":"Traceback (most recent call last):\n  …"}}', NULL);
INSERT INTO duly.ended VALUES (3, 1794816012000000, 1882002328678138, 2, 1794816011500000, 'failed', 'node-2', '{"failures":2,"failure":{"type":"ValueError","message":"Gerät kaputt","traceback":"Traceback (most recent call last):\n  …"}}', NULL);
INSERT INTO duly.ended VALUES (8, 1794816012000000, 0, 0, NULL, 'skipped', NULL, '{"reason":"misfire"}', NULL);
INSERT INTO duly.ended VALUES (14, 1794816012000000, 0, 0, NULL, 'skipped', NULL, '{"reason":"overlap"}', NULL);

INSERT INTO duly.epochs VALUES ('main', 1);

INSERT INTO duly.held VALUES (17, 1794816012000000, 500, false, 'place', 'default@', '0660602ad51b006513269e0d3f', NULL);
INSERT INTO duly.held VALUES (12, 1794816012000000, 500, false, 'group:solo', 'default', '0660602ad51b006513269e0d3a', 'solo');
INSERT INTO duly.held VALUES (15, 1794816012000000, 500, false, 'job:paused', 'default', '0660602ad51b006513269e0d3d', NULL);
INSERT INTO duly.held VALUES (16, 1794816012000000, 500, false, 'handler:nobody_has_it', 'default', '0660602ad51b006513269e0d3e', NULL);

INSERT INTO duly.items VALUES ('token', '1f7bd4e7f10a', '\x7b226964223a22316637626434653766313061222c226e616d65223a2273686f70222c22726f6c65223a227375626d6974746572222c22646967657374223a2239663836643038313838346337643635396132666561613063353561643031356133626634663162326230623832326364313564366331356230663030613038222c22637265617465645f6174223a22323032362d31312d31365430383a30303a30305a222c22717565756573223a5b226d61696c225d7d', 1);
INSERT INTO duly.items VALUES ('audit-head', 'main', '\x7b2273657175656e6365223a322c2268617368223a2237346236373763616433373965633438343338383663633038653361663130313930306632366536386166626639653439326335643337653231316466666366227d', 2);

INSERT INTO duly.jobs VALUES ('backup', false, '{"uid":"0660602a1e000072a752e6b43c","spec":{"name":"backup","handler":"duly:command","schedule":{"type":"cron","expression":"0 3 * * *","timezone":"UTC","dst":"cron","start_at":null,"end_at":null,"jitter":"P0D"},"command":{"argv":["pg_dump","shop"],"cwd":"/tmp","environment":{"A":"b"}}},"revision":1,"origin":"file","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":null,"fleet":"shop"}');
INSERT INTO duly.jobs VALUES ('beat', false, '{"uid":"0660602a1e000072a752e6b438","spec":{"name":"beat","handler":"beat","schedule":{"type":"every","interval":"PT10S","start_at":null,"end_at":null,"jitter":"P0D"}},"revision":1,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('mail', false, '{"uid":"0660602a1e000072a752e6b441","spec":{"name":"mail","handler":"mail"},"revision":1,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('nightly', false, '{"uid":"0660602a1e000072a752e6b439","spec":{"name":"nightly","handler":"nightly","schedule":{"type":"cron","expression":"30 2 * * *","timezone":"Europe/Berlin","dst":"cron","start_at":null,"end_at":null,"jitter":"PT5S"},"payload":"eyJkYXkiOiAiaGV1dGUgw7wifQ==","queue":"reports","priority":4,"policy":{"timeout":90.5,"retry":{"max_retries":1,"initial_interval":2.5,"max_interval":30.0,"multiplier":2.0,"strategy":"linear","jitter":0.25},"delivery":"at_least_once","on_store_loss":"stop"},"overlap":"queue","misfire":"all","description":"Zählt den Tag","tags":["money","night"]},"revision":1,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('once', false, '{"uid":"0660602a1e000072a752e6b43a","spec":{"name":"once","handler":"nightly","schedule":{"type":"once","at":"2026-11-16T09:00:00Z","jitter":"P0D"},"max_runs":1},"revision":1,"origin":"api","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":null,"fleet":null}');
INSERT INTO duly.jobs VALUES ('render', false, '{"uid":"0660602a1e000072a752e6b43d","spec":{"name":"render","handler":"render","schedule":{"type":"every","interval":"PT3600S","start_at":null,"end_at":null,"jitter":"P0D"},"selector":{"gpu":"yes"}},"revision":1,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('tides', false, '{"uid":"0660602a1e000072a752e6b43b","spec":{"name":"tides","handler":"tides","schedule":{"type":"custom","kind":"Tides","jitter":"P0D"}},"revision":1,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('paused', true, '{"uid":"0660602a1e000072a752e6b43e","spec":{"name":"paused","handler":"paused","schedule":{"type":"every","interval":"PT10S","start_at":null,"end_at":null,"jitter":"P0D"}},"revision":2,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":{"at":"2026-11-16T08:00:00Z","note":"während des Umzugs"},"retired_at":null,"removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('gone', true, '{"uid":"0660602a1e000072a752e6b43f","spec":{"name":"gone","handler":"gone","schedule":{"type":"every","interval":"PT10S","start_at":null,"end_at":null,"jitter":"P0D"}},"revision":2,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":null,"removed_at":"2026-11-16T08:00:00Z","code_since":"2026-11-16T08:00:00Z","fleet":null}');
INSERT INTO duly.jobs VALUES ('retired', false, '{"uid":"0660602a1e000072a752e6b440","spec":{"name":"retired","handler":"retired","schedule":{"type":"every","interval":"PT10S","start_at":null,"end_at":null,"jitter":"P0D"}},"revision":2,"origin":"code","created_at":"2026-11-16T08:00:00Z","updated_at":"2026-11-16T08:00:00Z","cursor":null,"plan_at":null,"planned":0,"paused":null,"retired_at":"2026-11-16T08:00:00Z","removed_at":null,"code_since":"2026-11-16T08:00:00Z","fleet":null}');

INSERT INTO duly.keys VALUES ('keyed', '\x6f726465722d3137', '0660602ad51b006513269e0d38');

INSERT INTO duly.log VALUES ('audit', 1, 1794817284431984, '\x7b226163746f72223a22636c69222c22616374696f6e223a227061757365222c22746172676574223a226a6f6220706175736564222c226174223a22323032362d31312d31365430383a30303a31325a222c226265666f7265223a7b22706175736564223a66616c73657d2c226166746572223a7b22706175736564223a747275657d2c2270726576696f7573223a2230303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030227d');
INSERT INTO duly.log VALUES ('audit', 2, 1794817284439426, '\x7b226163746f72223a2273686f70202831663762643465376631306129222c22616374696f6e223a2263616e63656c222c22746172676574223a2272756e2031222c226174223a22323032362d31312d31365430383a30303a31325a222c226265666f7265223a6e756c6c2c226166746572223a6e756c6c2c2270726576696f7573223a2231643037326331613361396636663162623065643861636365393165616233303966366237656465363830356337373433353437373836313435323262633034227d');
INSERT INTO duly.log VALUES ('events', 2, 1794817284445185, '\x74776f');
INSERT INTO duly.log VALUES ('events', 3, 1794817284445188, '\x7468726565');

INSERT INTO duly.nodes VALUES ('node-3', 1794816027000000, '{"id":"node-3","host":"host","pid":1,"started_at":"2026-11-16T08:00:12Z","roles":["scheduler","worker"],"queues":null,"handlers":["long","longer"],"labels":{"gpu":"yes"},"capacity":0,"version":"","metrics":{}}', NULL);

INSERT INTO duly.plans VALUES ('backup', 1, 1794816060000000, 1794816060000000, 0, true, '0660602a1e000072a752e6b43c', 'main');
INSERT INTO duly.plans VALUES ('mail', 1, NULL, NULL, 0, false, '0660602a1e000072a752e6b441', 'main');
INSERT INTO duly.plans VALUES ('nightly', 1, 1794816060000000, 1794816060000000, 0, true, '0660602a1e000072a752e6b439', 'main');
INSERT INTO duly.plans VALUES ('once', 1, 1794819600000000, 1794816060000000, 0, true, '0660602a1e000072a752e6b43a', 'main');
INSERT INTO duly.plans VALUES ('render', 1, 1794816060000000, 1794816060000000, 0, true, '0660602a1e000072a752e6b43d', 'main');
INSERT INTO duly.plans VALUES ('tides', 1, 1794816060000000, 1794816060000000, 0, true, '0660602a1e000072a752e6b43b', 'job:tides');
INSERT INTO duly.plans VALUES ('paused', 2, 1794816010000000, 1794816000000000, 0, false, '0660602a1e000072a752e6b43e', 'main');
INSERT INTO duly.plans VALUES ('gone', 2, 1794816010000000, 1794816000000000, 0, false, '0660602a1e000072a752e6b43f', 'main');
INSERT INTO duly.plans VALUES ('retired', 2, 1794816010000000, 1794816000000000, 0, false, '0660602a1e000072a752e6b440', 'main');
INSERT INTO duly.plans VALUES ('beat', 1, 1794816050000000, 1794816050000000, 1, true, '0660602a1e000072a752e6b438', 'main');

INSERT INTO duly.pulse VALUES (1794816012000000, 0);

INSERT INTO duly.queues VALUES ('orders', true);

INSERT INTO duly.requests VALUES ('node-2', 2, 1794816011500000);
INSERT INTO duly.requests VALUES ('node-1', 3, 1794816012000000);
INSERT INTO duly.requests VALUES ('node-3', 4, 1794816012000000);

INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (1, 1794816000000000, 1794816000000000, 1794816000000000, NULL, 500, '0660602a1e000072a752e6b442', 'mail', 'mail', 'default', 'submit', NULL, NULL, '{"headers":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}', '\x7b22746f223a2022616461406578616d706c652e6f7267227d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (4, 1794816000000000, 1794816000000000, 1794816000000000, NULL, 500, '0660602a1e000072a752e6b445', 'mail', 'mail', 'default', 'submit', NULL, '{"timeout":null,"retry":{"max_retries":3,"initial_interval":1.0,"max_interval":30.0,"multiplier":2.0,"strategy":"exponential","jitter":0.0},"delivery":"at_most_once","on_store_loss":"continue"}', NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (5, 1794816000000000, 1794816000000000, 1794816000000000, NULL, 500, '0660602a1e000072a752e6b446', 'mail', 'mail', 'default', 'submit', NULL, NULL, '{"dedupe_key":"welcome-ada"}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (6, 1794816000000000, 1794816000000000, 1794816000000000, NULL, 500, '0660602a1e000072a752e6b447', 'mail', 'mail', 'default', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (2, 1794816000000000, 1794816004000000, 1794816000000000, NULL, 500, '0660602a1e000072a752e6b443', 'mail', 'mail', 'default', 'submit', NULL, '{"timeout":90.5,"retry":{"max_retries":1,"initial_interval":2.5,"max_interval":30.0,"multiplier":2.0,"strategy":"linear","jitter":0.25},"delivery":"at_least_once","on_store_loss":"stop"}', '{"failures":1,"fence":1882002328678132,"node":"node-1","request":1,"started_at":1794816000000000,"failure":{"type":"ValueError","message":"Gerät kaputt","traceback":"Traceback (most recent call last):\n  …"}}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (3, 1794816000000000, 1794816004000000, 1794816000000000, NULL, 500, '0660602a1e000072a752e6b444', 'mail', 'mail', 'default', 'submit', NULL, '{"timeout":90.5,"retry":{"max_retries":1,"initial_interval":2.5,"max_interval":30.0,"multiplier":2.0,"strategy":"linear","jitter":0.25},"delivery":"at_least_once","on_store_loss":"stop"}', '{"failures":1,"fence":1882002328678133,"node":"node-1","request":1,"started_at":1794816000000000,"failure":{"type":"TimeoutError","message":"too slow","traceback":""}}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (7, 1794816040000000, 1794816040000000, 1794816012000000, NULL, 500, '0660602a1e000072a752e6b438-20261116T080040.000000', 'beat', 'beat', 'default', 'schedule', NULL, NULL, '{"uid":"0660602a1e000072a752e6b438","revision":1}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (8, 1794816010000000, 1794816010000000, 1794816012000000, 1794816030000000, 500, '0660602a1e000072a752e6b438-20261116T080010.000000', 'beat', 'beat', 'default', 'schedule', NULL, NULL, '{"uid":"0660602a1e000072a752e6b438","revision":1,"reason":"misfire"}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (9, 1794823212000000, 1794823212000000, 1794816012000000, NULL, 491, '0660602ad51b006513269e0d37', 'later', 'later', 'default', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (10, 1794823212000000, 1794823212000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d38', 'keyed', 'keyed', 'orders', 'submit', NULL, NULL, '{"dedupe_key":"order-17"}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (12, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d3a', 'solo', 'solo', 'default', 'submit', 'solo', NULL, '{"when_full":"queue"}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (14, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d3c', 'solo', 'solo', 'default', 'submit', 'skips', NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (15, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d3d', 'paused', 'paused', 'default', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (16, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d3e', 'rare', 'nobody_has_it', 'default', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (17, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d3f', 'render', 'render', 'default@', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (11, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d39', 'solo', 'solo', 'default', 'submit', 'solo', NULL, '{"when_full":"queue","fence":1882002328678139,"node":"node-1","request":3,"started_at":1794816012000000}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (13, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d3b', 'solo', 'solo', 'default', 'submit', 'skips', NULL, '{"fence":1882002328678140,"node":"node-1","request":3,"started_at":1794816012000000}', '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (18, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d40', 'long', 'long', 'long', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (19, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d41', 'longer', 'longer', 'long', 'submit', NULL, NULL, NULL, '\x7b7d');
INSERT INTO duly.runs OVERRIDING SYSTEM VALUE VALUES (20, 1794816012000000, 1794816012000000, 1794816012000000, NULL, 500, '0660602ad51b006513269e0d42', 'stop', 'stop', 'long', 'submit', NULL, NULL, NULL, '\x7b7d');

INSERT INTO duly.schema VALUES (1, '0001_initial', 1794817284196332);
INSERT INTO duly.schema VALUES (2, '0002_groups', 1794817284208562);

INSERT INTO duly.shared VALUES ('setting', '\x76616c7565', 1);

INSERT INTO duly.staff VALUES ('b5735fa8c9bc672ddd497eb1f9805df6', '', 1794816012000000);
INSERT INTO duly.staff VALUES ('b5735fa8c9bc672ddd497eb1f9805df6', 'beat', 1794816012000000);
INSERT INTO duly.staff VALUES ('b5735fa8c9bc672ddd497eb1f9805df6', 'mail', 1794816012000000);
INSERT INTO duly.staff VALUES ('b5735fa8c9bc672ddd497eb1f9805df6', 'solo', 1794816012000000);
INSERT INTO duly.staff VALUES ('e6a9bb4ce86ba9e70a13cc28f4968124', '', 1794816012000000);
INSERT INTO duly.staff VALUES ('e6a9bb4ce86ba9e70a13cc28f4968124', 'long', 1794816012000000);
INSERT INTO duly.staff VALUES ('e6a9bb4ce86ba9e70a13cc28f4968124', 'longer', 1794816012000000);
INSERT INTO duly.staff VALUES ('e6a9bb4ce86ba9e70a13cc28f4968124', 'stop', 1794816012000000);

INSERT INTO duly.statistics VALUES ('mail', 'node-1', 2, 0, 1, 1, 2, 9, 1794816000000000, 'succeeded');
INSERT INTO duly.statistics VALUES ('mail', 'node-2', 0, 2, 0, 0, 0, 0.75, 1794816011500000, 'failed');

INSERT INTO duly.totals VALUES ('lost', 'node-1', 1, 1);
INSERT INTO duly.totals VALUES ('cancelled', 'node-1', 1, 1);
INSERT INTO duly.totals VALUES ('completed', 'node-1', 2, 2);
INSERT INTO duly.totals VALUES ('failed', 'node-2', 2, 2);
INSERT INTO duly.totals VALUES ('skipped', '', 2, 2);

INSERT INTO duly.waiting VALUES (7, 1794816040000000, 500, false, 'default', '0660602a1e000072a752e6b438-20261116T080040.000000', NULL);
INSERT INTO duly.waiting VALUES (9, 1794823212000000, 491, false, 'default', '0660602ad51b006513269e0d37', NULL);
INSERT INTO duly.waiting VALUES (10, 1794823212000000, 500, false, 'orders', '0660602ad51b006513269e0d38', NULL);
INSERT INTO duly.waiting VALUES (11, 1794816012000000, 500, false, 'default', '0660602ad51b006513269e0d39', 'solo');
INSERT INTO duly.waiting VALUES (13, 1794816012000000, 500, false, 'default', '0660602ad51b006513269e0d3b', 'skips');

SELECT pg_catalog.setval('duly.fences', 1882002328678143, true);

SELECT pg_catalog.setval('duly.runs_seq_seq', 20, true);

ALTER TABLE ONLY duly.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (seq, fence);

ALTER TABLE ONLY duly.buckets
    ADD CONSTRAINT buckets_pkey PRIMARY KEY (bucket);

ALTER TABLE ONLY duly.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY duly.ended
    ADD CONSTRAINT ended_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY duly.epochs
    ADD CONSTRAINT epochs_pkey PRIMARY KEY (shard);

ALTER TABLE ONLY duly.held
    ADD CONSTRAINT held_pkey PRIMARY KEY (hold, rank, ready_at, id);

ALTER TABLE ONLY duly.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (kind, key);

ALTER TABLE ONLY duly.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (name);

ALTER TABLE ONLY duly.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (handler, key);

ALTER TABLE ONLY duly.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);

ALTER TABLE ONLY duly.log
    ADD CONSTRAINT log_pkey PRIMARY KEY (log, sequence);

ALTER TABLE ONLY duly.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY duly.plans
    ADD CONSTRAINT plans_pkey PRIMARY KEY (name);

ALTER TABLE ONLY duly.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);

ALTER TABLE ONLY duly.requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (node);

ALTER TABLE ONLY duly.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY duly.schema
    ADD CONSTRAINT schema_pkey PRIMARY KEY (version);

ALTER TABLE ONLY duly.shared
    ADD CONSTRAINT shared_pkey PRIMARY KEY (key);

ALTER TABLE ONLY duly.staff
    ADD CONSTRAINT staff_pkey PRIMARY KEY (digest, handler);

ALTER TABLE ONLY duly.statistics
    ADD CONSTRAINT statistics_pkey PRIMARY KEY (job, node);

ALTER TABLE ONLY duly.totals
    ADD CONSTRAINT totals_pkey PRIMARY KEY (state, node);

ALTER TABLE ONLY duly.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (line, rank, ready_at, id);

CREATE INDEX claims_expiry ON duly.claims USING btree (expires_at);

CREATE INDEX claims_group ON duly.claims USING btree ("group") WHERE ("group" IS NOT NULL);

CREATE INDEX ended_state ON duly.ended USING btree (state, finished_at);

CREATE INDEX held_member ON duly.held USING btree ("group") WHERE member;

CREATE UNIQUE INDEX held_run ON duly.held USING btree (seq);

CREATE INDEX jobs_blocked ON duly.jobs USING btree (name) WHERE blocked;

CREATE INDEX keys_run ON duly.keys USING btree (id);

CREATE INDEX plans_due ON duly.plans USING btree (shard, plan_at, name) WHERE (plannable AND (plan_at IS NOT NULL));

CREATE UNIQUE INDEX runs_id ON duly.runs USING btree (id);

CREATE INDEX runs_job ON duly.runs USING btree (job, seq);

CREATE INDEX runs_until ON duly.runs USING btree (id, until) WHERE (until IS NOT NULL);

CREATE INDEX waiting_entering ON duly.waiting USING btree (ready_at, id) WHERE entering;

CREATE INDEX waiting_group ON duly.waiting USING btree ("group", entering, ready_at) WHERE ("group" IS NOT NULL);
