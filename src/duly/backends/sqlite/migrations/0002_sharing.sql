-- Runs of schedules stand in lines of their own beside the others of their queue and priority, so that a claim can give
-- both their share (rules.sharing): their line is 400 less. What an earlier version let wait stays where it is and is
-- taken in its turn. {ns} is the namespace.

DROP VIEW {ns}_overview;

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
    CASE WHEN r.line % 1000 < 400 THEN 100 ELSE 500 END - r.line % 1000 AS priority,
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
