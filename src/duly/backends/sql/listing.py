"""Looking runs up. Nothing here changes anything.

Runs are numbered as they are created, so a page, newest first, goes on below the last run of the page before. Where few
runs can match by their state only those are looked at, and by their job only its own; otherwise the table is walked
from its newest run back until the page is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from duly.backends.codec import counts_of, read_attempt, read_statistics
from duly.backends.cursors import numbers_in
from duly.backends.sql.moves import by_ids, by_seqs, read_records
from duly.backends.sql.operating import paused
from duly.backends.sql.unit import Conditions, Row, Unit
from duly.model import (
    FINAL,
    WAITING,
    Attempt,
    Counts,
    JobStatistics,
    Page,
    Run,
    RunQuery,
    State,
    from_micros,
    recurring_id,
    to_micros,
)
from duly.model.holds import UNPLACED
from duly.rules.history import history_of
from duly.rules.statistics import combine

# The record of a range of instants around one: ids of a job's runs sort like their instants.
_COVERING = """
SELECT {run} FROM {ns}.runs AS r {standing}
WHERE r.id >= $1 AND r.id <= $2 AND r.until IS NOT NULL AND r.until >= $3
ORDER BY r.id DESC
LIMIT 1
"""
_ATTEMPTS = """
SELECT a.number, a.fence, a.node, a.started_at, a.ended_at, a.outcome, a.failure
FROM {ns}.runs AS r INNER JOIN {ns}.attempts AS a ON a.seq = r.seq
WHERE r.id = $1
"""
_STATISTICS = """
SELECT job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome FROM {ns}.statistics
"""
_STATISTICS_OF = _STATISTICS + "WHERE job = ANY($1::text[])"
_ENDED = "SELECT state, sum(ended)::bigint FROM {ns}.totals GROUP BY state"

# The first runs of some jobs without looking at all that waits: an index by job would make every claim pay for it.
_FRONT = 500
_NEWEST_OF_JOB = 20
_READY_OF = """
SELECT job, ready_at FROM (SELECT {job} AS job, r.ready_at FROM {ns}.runs AS r WHERE r.seq = ANY($1::bigint[])) AS front
WHERE job = ANY($2::text[])
"""
# Ids of a schedule's runs sort like their instants.
_FIRST_OF_SCHEDULE = """
SELECT p.name, (
    SELECT r.ready_at FROM {ns}.runs AS r
    WHERE r.id >= p.uid || $2::text AND r.id < p.uid || '.' AND {is_upcoming} ORDER BY r.id LIMIT 1
)
FROM {ns}.plans AS p WHERE p.name = ANY($1::text[])
"""
_FIRST_OF_NEWEST = """
SELECT j.job, (
    SELECT min(r.ready_at) FROM (SELECT * FROM {ns}.runs AS r WHERE {run_of_job} ORDER BY r.seq DESC LIMIT $2) AS r
    WHERE {is_upcoming}
)
FROM {jobs_named}
"""

_FEW = 50_000
_RUNS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE "
_NEWEST = " ORDER BY r.seq DESC LIMIT "
# How many runs may be in a state: exactly up to a bound.
_NUMBER = """
SELECT
    CASE WHEN $1 THEN (SELECT count(*) FROM (SELECT 1 FROM {all_waiting} LIMIT $4) AS few) ELSE 0 END
    + CASE WHEN $2 THEN (SELECT count(*) FROM (SELECT 1 FROM {ns}.claims LIMIT $4) AS few) ELSE 0 END
    + (SELECT coalesce(sum(kept), 0)::bigint FROM {ns}.totals WHERE state = ANY($3::text[]))
"""
# Which runs those are.
_OF_WAITING = "SELECT seq FROM {all_waiting}"
_OF_RUNNING = "SELECT seq FROM {ns}.claims"
_OF_ENDED = "SELECT seq FROM {ns}.ended WHERE state = ANY(?::text[])"

_IS_ENDED = "e.state = ANY(?::text[])"
_IS_RUNNING = "c.seq IS NOT NULL"
_IS_QUEUED = "(e.seq IS NULL AND c.seq IS NULL AND h.seq IS NULL AND r.ready_at <= ?::bigint)"
_IS_PENDING = "(e.seq IS NULL AND c.seq IS NULL AND (h.seq IS NOT NULL OR r.ready_at > ?::bigint))"


# --- single runs


async def find(unit: Unit, run_id: str, now: int | None) -> Run | None:
    """One run as it stands."""
    record = (await by_ids(unit, [run_id], now)).get(run_id)
    return None if record is None else record.run


async def ended_of(unit: Unit, run_ids: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Those of these runs that have ended, and the ids of those that are gone."""
    found = await by_ids(unit, run_ids)
    ended = [record.run for record in found.values() if record.run.final]
    return ended, [run_id for run_id in run_ids if run_id not in found]


async def covering(unit: Unit, uid: str, at: datetime, now: int) -> Run | None:
    """The record of a recurring job that accounts for an instant."""
    exact = recurring_id(uid, at)
    run = await find(unit, exact, now)
    if run is not None:
        return run
    records = read_records(await unit.all(_COVERING, f"{uid}-", exact, to_micros(at)), now)
    return records[0].run if records else None


async def attempts(unit: Unit, run_id: str) -> list[Attempt]:
    """The history of a run, oldest first."""
    stored = [read_attempt(row) for row in await unit.all(_ATTEMPTS, run_id)]
    return history_of(await find(unit, run_id, None), stored)


# --- what comes next


async def upcoming(unit: Unit, limit: int, job: str | None, now: int) -> list[Run]:
    """Waiting runs that nothing holds, or that are not placed yet, by ready time, then id."""
    seqs = await unit.dialect.soonest(unit, limit, job, now)
    return [record.run for record in await by_seqs(unit, seqs, now)]


async def next_runs(unit: Unit) -> dict[str, datetime]:
    """For every job that has upcoming runs: the earliest ready time among them."""
    return {job: from_micros(ready_at) for job, ready_at in await unit.all("{first_ready}", UNPLACED)}


async def next_runs_of(unit: Unit, jobs: Sequence[str], now: int) -> dict[str, datetime]:
    """The same for some jobs: among the first of all runs, the first of each schedule, and the newest of each job."""
    front = await unit.dialect.soonest(unit, _FRONT, None, now)
    found = [
        *await unit.all(_READY_OF, front, list(jobs)),
        *await unit.all(_FIRST_OF_SCHEDULE, list(jobs), recurring_id("", from_micros(now))),
        *await unit.all(_FIRST_OF_NEWEST, list(jobs), _NEWEST_OF_JOB),
    ]
    first: dict[str, datetime] = {}
    for job, ready_at in found:
        if ready_at is not None:
            ready = from_micros(ready_at)
            first[job] = min(ready, first.get(job, ready))
    return first


# --- counters


async def statistics(unit: Unit, jobs: Sequence[str] | None) -> dict[str, JobStatistics]:
    """Counters by job; a job that never ended a run is left out."""
    rows = await (unit.all(_STATISTICS) if jobs is None else unit.all(_STATISTICS_OF, list(jobs)))
    parts: dict[str, list[JobStatistics]] = {}
    for row in rows:
        parts.setdefault(row[0], []).append(read_statistics(row))
    return {job: combine(of_nodes) for job, of_nodes in parts.items()}


async def counts(unit: Unit, now: int | None) -> Counts:
    """Runs by state and queue."""
    return counts_of(await unit.all("{depths}", now), await unit.all(_ENDED), await paused(unit))


# --- pages


class _Where:
    """Conditions with their parameters; `?` in a text becomes the number of its parameter."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.parameters: list[Any] = []

    def numbered(self, text: str, *parameters: Any) -> str:
        for parameter in parameters:
            self.parameters.append(parameter)
            text = text.replace("?", f"${len(self.parameters)}", 1)
        return text

    def add(self, text: str, *parameters: Any) -> None:
        self._texts.append(self.numbered(text, *parameters))

    def add_one_of(self, conditions: Conditions, between: str, template: str = "({})") -> None:
        texts = [self.numbered(text, *parameters) for text, parameters in conditions]
        self._texts.append(template.format(between.join(texts)))

    def __str__(self) -> str:
        return " AND ".join(self._texts) or "true"


async def page(unit: Unit, query: RunQuery, limit: int, cursor: str | None, now: int) -> Page:
    """Runs that match; `cursor` is the number of the last run of the page before."""
    shared = _conditions(query, cursor)
    alternatives = await unit.dialect.matching(unit, query)
    found = [await _newest(unit, [*conditions, *shared], query, limit + 1, now) for conditions in alternatives]
    rows = found[0] if len(found) == 1 else _merged(found)[: limit + 1]
    records = read_records(rows[:limit], now)
    more = len(rows) > limit and bool(records)
    return Page([record.run for record in records], str(records[-1].seq) if more else None)


def _merged(found: Iterable[Sequence[Row]]) -> list[Row]:
    return sorted(chain.from_iterable(found), key=lambda row: int(row[0]), reverse=True)


async def _newest(unit: Unit, conditions: Conditions, query: RunQuery, limit: int, now: int) -> list[Row]:
    where = _Where()
    for text, parameters in conditions:
        where.add(text, *parameters)
    if query.states:
        await _add_states(unit, frozenset(query.states), where, now)
    most = where.numbered("?::bigint", limit)
    return await unit.all(f"{_RUNS}{where}{_NEWEST}{most}", *where.parameters)


def _conditions(query: RunQuery, cursor: str | None) -> Conditions:
    conditions: Conditions = []
    if cursor is not None:
        conditions.append(("r.seq < ?::bigint", numbers_in(cursor, 1)))
    if query.due_from is not None:
        conditions.append(("r.due >= ?::bigint", (to_micros(query.due_from),)))
    if query.due_until is not None:
        conditions.append(("r.due <= ?::bigint", (to_micros(query.due_until),)))
    return conditions


async def _add_states(unit: Unit, states: frozenset[State], where: _Where, now: int) -> None:
    ended = sorted(state.value for state in states & FINAL)
    one_of: Conditions = [
        *([(_IS_ENDED, (ended,))] if ended else []),
        *([(_IS_RUNNING, ())] if State.RUNNING in states else []),
        *([(_IS_QUEUED, (now,))] if State.QUEUED in states else []),
        *([(_IS_PENDING, (now,))] if State.PENDING in states else []),
    ]
    where.add_one_of(one_of, " OR ")
    row = await unit.one(_NUMBER, bool(states & WAITING), State.RUNNING in states, ended, _FEW + 1)
    if row is not None and row[0] <= _FEW:
        narrow: Conditions = [
            *([(_OF_ENDED, (ended,))] if ended else []),
            *([(_OF_RUNNING, ())] if State.RUNNING in states else []),
            *([(_OF_WAITING, ())] if states & WAITING else []),
        ]
        where.add_one_of(narrow, " UNION ALL ", "r.seq IN ({})")
