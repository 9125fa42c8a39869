"""What PostgreSQL does its own way beyond the syntax of statements: adding, dedupe keys, searching, leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duly.backends.codec import MIDDLE, optional_json, stored_cause
from duly.backends.postgres import adding
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.sql.unit import Conditions, Row
from duly.model import Put, Run, RunQuery, from_micros, to_micros
from duly.model.holds import UNPLACED

_FEW_JOBS = 20

# The soonest runs of every line.
_SOONEST = """
WITH RECURSIVE {lines},
soonest AS (
    SELECT seq, ready_at, id FROM {ns}.held WHERE hold = $2
    UNION ALL
    SELECT n.seq, n.ready_at, n.id FROM lines AS l CROSS JOIN LATERAL (
        SELECT seq, ready_at, id FROM {ns}.waiting AS w
        WHERE w.line = l.line AND w.rank = l.rank ORDER BY w.ready_at, w.id LIMIT $1
    ) AS n
)
SELECT seq FROM soonest ORDER BY ready_at, id LIMIT $1
"""
# The first $3 scheduled runs of all lines that are ready after $1 and by $2.
# Scan all waiting runs: an index by job would slow down every claim for a rare question.
_SOONEST_OF_JOB = """
SELECT seq FROM (
    SELECT w.seq, w.ready_at, w.id FROM {ns}.waiting AS w INNER JOIN {ns}.runs AS r ON r.seq = w.seq WHERE r.job = $3
    UNION ALL
    SELECT h.seq, h.ready_at, h.id FROM {ns}.held AS h INNER JOIN {ns}.runs AS r ON r.seq = h.seq
    WHERE h.hold = $2 AND r.job = $3
) AS soonest
ORDER BY ready_at, id LIMIT $1
"""

# The first $3 waiting runs after ready time $1 and id $2; of queue $4 if one is given, but for held ones.
_BY_READY_TIME = """
WITH RECURSIVE {lines}
(
    SELECT n.ready_at, n.id, n.seq FROM lines AS l CROSS JOIN LATERAL (
        SELECT ready_at, id, seq FROM {ns}.waiting AS w
        WHERE w.line = l.line AND w.rank = l.rank AND (w.ready_at, w.id) > ($1::bigint, $2::text)
        ORDER BY w.ready_at, w.id LIMIT $3
    ) AS n
    WHERE $4::text IS NULL OR split_part(l.line, '@', 1) = $4::text
)
UNION ALL
(
    SELECT ready_at, id, seq FROM {ns}.held WHERE (ready_at, id) > ($1::bigint, $2::text)
    ORDER BY ready_at, id LIMIT $3
)
ORDER BY ready_at, id LIMIT $3
"""

# The first $2 runs under hold $3: those due at $1 by rank, ready time and id, then the others by time; after the run of
# rank $4, ready time $5 and id $6, if one is given. Ranks are found by a loose index scan.
_FIRST_HELD = """
WITH RECURSIVE ranks (rank) AS (
    SELECT min(rank) FROM {ns}.held WHERE hold = $3
    UNION ALL
    SELECT (SELECT min(rank) FROM {ns}.held WHERE hold = $3 AND rank > ranks.rank) FROM ranks WHERE rank IS NOT NULL
),
first AS MATERIALIZED (
    SELECT f.*, ranks.rank AS urgency, false AS later FROM ranks CROSS JOIN LATERAL (
        SELECT seq, ready_at, id FROM {ns}.held AS h
        WHERE h.hold = $3 AND h.rank = ranks.rank AND h.ready_at <= $1
            AND ($4::int IS NULL OR h.rank > $4 OR (h.rank = $4 AND (h.ready_at, h.id) > ($5::bigint, $6::text)))
        ORDER BY h.ready_at, h.id LIMIT $2
    ) AS f
    WHERE $4::int IS NULL OR $5::bigint <= $1
    UNION ALL
    SELECT f.*, 0, true FROM ranks CROSS JOIN LATERAL (
        SELECT seq, ready_at, id FROM {ns}.held AS h
        WHERE h.hold = $3 AND h.rank = ranks.rank AND h.ready_at > $1
            AND ($4::int IS NULL OR (h.ready_at, h.id) > ($5::bigint, $6::text))
        ORDER BY h.ready_at, h.id LIMIT $2
    ) AS f
)
SELECT seq FROM first ORDER BY later, urgency, ready_at, id LIMIT $2
"""

# Takes the lease unless another holder has it. The fence is drawn under the row's lock, except for a new name, whose
# first row only one caller can insert. Returns no row when it is held.
_ACQUIRE = """
INSERT INTO {ns}.leases AS l (name, holder, fence, expires_at)
VALUES ($2, $3, nextval('{ns}.fences'), {now} + $4)
ON CONFLICT (name) DO UPDATE SET
    holder = $3,
    fence = CASE WHEN l.holder = $3 AND l.expires_at > {now} THEN l.fence ELSE nextval('{ns}.fences') END,
    expires_at = {now} + $4
WHERE l.holder IN ($3, '') OR l.expires_at <= {now}
RETURNING fence, expires_at
"""


class PostgresDialect:
    """One instance for all: it has no state."""

    async def add(self, unit: PostgresUnit, runs: Sequence[Run], now: int) -> list[Put]:
        return await adding.add(unit, runs, from_micros(now))

    async def take_keys(self, unit: PostgresUnit, runs: Sequence[tuple[int, Run]], now: int) -> set[int]:
        return await adding.take_keys(unit, runs, now)

    def reason(self, text: str | None) -> str | None:
        """As JSON: TEXT cannot contain a zero byte."""
        return optional_json(text)

    async def know_line(self, unit: PostgresUnit, line: str) -> None:
        """Any text is a line."""

    # --- searching

    async def soonest(self, unit: PostgresUnit, limit: int, job: str | None, now: int) -> list[int]:
        if job is None:
            rows = await unit.all(_SOONEST, limit, UNPLACED)
        else:
            rows = await unit.all(_SOONEST_OF_JOB, limit, UNPLACED, job)
        return [row[0] for row in rows]

    async def first_held(self, unit: PostgresUnit, key: str, limit: int, after: Run | None, now: int) -> list[int]:
        start: tuple[int | None, int | None, str | None] = (None, None, None)
        if after is not None:
            start = (MIDDLE - after.priority, to_micros(after.ready_at), after.id)
        return [row[0] for row in await unit.all(_FIRST_HELD, now, limit, key, *start)]

    async def matching(self, unit: PostgresUnit, query: RunQuery) -> Conditions:
        wanted = {
            "r.job = ANY(?::text[])": None if query.names is None else sorted(query.names),
            "r.handler = ?::text": query.handler,
            "r.cause = ?::text": None if query.cause is None else stored_cause(query.cause).value,
            "split_part(r.line, '@', 1) = ?::text": query.queue,
        }
        return [(text, (value,)) for text, value in wanted.items() if value is not None]

    async def of_jobs(self, unit: PostgresUnit, query: RunQuery) -> list[Conditions] | None:
        names = query.names
        if names is None or len(names) > _FEW_JOBS:
            return None
        return [[("r.job = ?::text", (name,))] for name in sorted(names)]

    async def by_ready_time(
        self, unit: PostgresUnit, queue: str | None, ready_at: int, run_id: str, limit: int
    ) -> list[Row]:
        return await unit.all(_BY_READY_TIME, ready_at, run_id, limit, queue)

    # --- leases

    async def acquire(self, unit: PostgresUnit, name: str, holder: str, ttl: int, now: datetime | None) -> Row | None:
        return await unit.one(_ACQUIRE, unit.moment(now), name, holder, ttl)


DIALECT = PostgresDialect()
