-- Runs of schedules wait beside the others of their queue and priority, so that a claim can give both their share
-- (rules.sharing). {ns} is the namespace.
--
-- In waiting and in runs, rank is 500 - priority, and 400 less for runs of schedules; in held it is 500 - priority for
-- all, since held runs come back in one order. What an earlier version let wait stays where it is and is taken in its
-- turn. A node of an earlier version takes runs of schedules first of all.

-- As before; the rank is that of the run.
CREATE OR REPLACE FUNCTION {ns}.unhold(key TEXT, most BIGINT) RETURNS BIGINT
LANGUAGE sql AS $$
    WITH first AS MATERIALIZED (
        SELECT seq FROM {ns}.held WHERE hold = key ORDER BY rank, ready_at, id LIMIT most FOR UPDATE SKIP LOCKED
    ),
    back AS (
        DELETE FROM {ns}.held WHERE seq = ANY(ARRAY(SELECT seq FROM first))
        RETURNING seq, line, ready_at, id, "group", member
    ),
    placed AS (
        INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
        SELECT
            seq, line, (SELECT r.rank FROM {ns}.runs AS r WHERE r.seq = back.seq), ready_at, id, "group",
            "group" IS NOT NULL AND NOT member
        FROM back
    )
    SELECT count(*) FROM back
$$;

CREATE OR REPLACE VIEW {ns}.overview AS
SELECT
    r.id,
    r.job,
    r.handler,
    coalesce(e.state, CASE WHEN c.seq IS NOT NULL THEN 'running' ELSE 'waiting' END) AS state,
    h.hold,
    split_part(r.line, '@', 1) AS queue,
    nullif(split_part(r.line, '@', 2), '') AS assignee,
    CASE WHEN r.rank < 400 THEN 100 ELSE 500 END - r.rank AS priority,
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
