"""Looking runs up: nothing here changes anything. Pages of runs are in `pages`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duly.backends.postgres.codec import queue_of, read_records
from duly.backends.postgres.operating import paused
from duly.backends.postgres.unit_of_work import Row, UnitOfWork
from duly.backends.rows import counts_of, read_attempt, read_statistics
from duly.model import (
    Attempt,
    Counts,
    JobStatistics,
    Run,
    from_micros,
    recurring_id,
    to_micros,
)
from duly.model.holds import UNPLACED
from duly.rules.history import told
from duly.rules.statistics import combine

_BY_IDS = """
SELECT {run}, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM {ns}.runs AS r {standing}
WHERE r.id = ANY($1::text[])
"""

# The record of a range of instants around one: ids of a job's runs sort like their instants.
_COVERING = """
SELECT {run}, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM {ns}.runs AS r {standing}
WHERE r.id >= $1 AND r.id <= $2 AND r.until IS NOT NULL AND r.until >= $3
ORDER BY r.id DESC
LIMIT 1
"""

_ATTEMPTS = """
SELECT a.number, a.fence, a.node, a.started_at, a.ended_at, a.outcome, a.failure
FROM {ns}.runs AS r INNER JOIN {ns}.attempts AS a ON a.seq = r.seq
WHERE r.id = $1
"""

# The soonest runs of every line; lines are found by leaping from one to the next.
_SOONEST = """
WITH RECURSIVE lines AS (
    (SELECT line, rank FROM {ns}.waiting ORDER BY line, rank LIMIT 1)
    UNION ALL
    SELECT n.line, n.rank FROM lines AS l CROSS JOIN LATERAL (
        SELECT line, rank FROM {ns}.waiting WHERE (line, rank) > (l.line, l.rank) ORDER BY line, rank LIMIT 1
    ) AS n
),
unplaced AS (
    SELECT seq, ready_at, id FROM {ns}.held WHERE hold = $2
),
soonest AS (
    SELECT * FROM unplaced
    UNION ALL
    SELECT n.seq, n.ready_at, n.id FROM lines AS l CROSS JOIN LATERAL (
        SELECT seq, ready_at, id FROM {ns}.waiting AS w
        WHERE w.line = l.line AND w.rank = l.rank ORDER BY w.ready_at, w.id LIMIT $1
    ) AS n
    ORDER BY ready_at, id LIMIT $1
)
SELECT {run} FROM soonest AS s INNER JOIN {ns}.runs AS r ON r.seq = s.seq {standing} ORDER BY s.ready_at, s.id
"""
# Walk over all that waits: an index by job would make every claim pay for what few people ask.
_SOONEST_OF_JOB = """
WITH soonest AS (
    SELECT w.seq, w.ready_at, w.id FROM {ns}.waiting AS w INNER JOIN {ns}.runs AS r ON r.seq = w.seq
    WHERE r.job = $3
    UNION ALL
    SELECT h.seq, h.ready_at, h.id FROM {ns}.held AS h INNER JOIN {ns}.runs AS r ON r.seq = h.seq
    WHERE h.hold = $2 AND r.job = $3
    ORDER BY ready_at, id LIMIT $1
)
SELECT {run} FROM soonest AS s INNER JOIN {ns}.runs AS r ON r.seq = s.seq {standing} ORDER BY s.ready_at, s.id
"""
_FIRST_READY = """
SELECT r.job, min(w.ready_at)
FROM (SELECT seq, ready_at FROM {ns}.waiting UNION ALL SELECT seq, ready_at FROM {ns}.held WHERE hold = $1) AS w
INNER JOIN {ns}.runs AS r ON r.seq = w.seq
GROUP BY r.job
"""

_STATISTICS = """
SELECT job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome FROM {ns}.statistics
WHERE $1::text[] IS NULL OR job = ANY($1::text[])
"""

_ENDED = "SELECT state, sum(ended)::bigint FROM {ns}.totals GROUP BY state"
# What waits and runs, by line: due, not yet due or held, running, and the first ready time of what is due.
_DEPTHS = """
WITH {clock}
SELECT
    line,
    count(*) FILTER (WHERE ready_at <= now),
    count(*) FILTER (WHERE ready_at > now),
    0,
    min(ready_at) FILTER (WHERE ready_at <= now)
FROM {ns}.waiting, clock GROUP BY line
UNION ALL
SELECT line, 0, count(*), 0, NULL FROM {ns}.held GROUP BY line
UNION ALL
SELECT r.line, 0, 0, count(*), NULL
FROM {ns}.claims AS c INNER JOIN {ns}.runs AS r ON r.seq = c.seq GROUP BY r.line
"""


# --- single runs


async def find(unit: UnitOfWork, run_id: str, now: int | None = None) -> Run | None:
    """One run as it stands; by the server's clock, unless told otherwise."""
    rows = await unit.all(_BY_IDS, [run_id])
    return _read(rows, now)


def _read(rows: Sequence[Row], now: int | None) -> Run | None:
    """The run of the first row, if there is one."""
    records = read_records(rows[:1], rows[0][-1] if rows and now is None else now)
    return records[0].run if records else None


async def ended_of(unit: UnitOfWork, run_ids: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Those of these runs that have ended, and the ids of those that are gone."""
    runs = {record.run.id: record.run for record in read_records(await unit.all(_BY_IDS, list(run_ids)))}
    return [run for run in runs.values() if run.final], [run_id for run_id in run_ids if run_id not in runs]


async def covering(unit: UnitOfWork, uid: str, at: datetime) -> Run | None:
    """The record of a recurring job that accounts for an instant."""
    exact = recurring_id(uid, at)
    run = await find(unit, exact)
    if run is not None:
        return run
    return _read(await unit.all(_COVERING, f"{uid}-", exact, to_micros(at)), None)


async def attempts(unit: UnitOfWork, run_id: str) -> list[Attempt]:
    """The history of a run, oldest first."""
    stored = [read_attempt(row) for row in await unit.all(_ATTEMPTS, run_id)]
    return told(await find(unit, run_id), stored)


# --- what comes next


async def upcoming(unit: UnitOfWork, limit: int, job: str | None, now: int) -> list[Run]:
    """Waiting runs that nothing holds, or that are yet to be placed, by ready time, then id."""
    if job is None:
        rows = await unit.all(_SOONEST, limit, UNPLACED)
    else:
        rows = await unit.all(_SOONEST_OF_JOB, limit, UNPLACED, job)
    return [record.run for record in read_records(rows, now)]


async def next_runs(unit: UnitOfWork) -> dict[str, datetime]:
    """For every job that has runs which are upcoming: the earliest ready time among them."""
    return {job: from_micros(ready_at) for job, ready_at in await unit.all(_FIRST_READY, UNPLACED)}


# --- counters


async def statistics(unit: UnitOfWork, jobs: Sequence[str] | None) -> dict[str, JobStatistics]:
    """Counters by job, summed over nodes; a job that never ended a run is left out."""
    parts: dict[str, list[JobStatistics]] = {}
    for row in await unit.all(_STATISTICS, None if jobs is None else list(jobs)):
        parts.setdefault(row[0], []).append(read_statistics(row))
    return {job: combine(of_nodes) for job, of_nodes in parts.items()}


async def counts(unit: UnitOfWork, now: int | None) -> Counts:
    """Runs by state and queue."""
    lines = [
        (queue_of(line), queued, pending, running, oldest)
        for line, queued, pending, running, oldest in await unit.all(_DEPTHS, now)
    ]
    return counts_of(lines, await unit.all(_ENDED), await paused(unit))
