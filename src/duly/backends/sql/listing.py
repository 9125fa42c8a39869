"""Looking runs up and counting them. Nothing here changes anything. Pages of a listing are in `sql.pages`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.backends.codec import instant, read_attempt, read_statistics
from duly.backends.sql.moves import by_ids, by_seqs, read_records
from duly.backends.sql.operating import paused
from duly.backends.sql.unit import Unit
from duly.model import (
    Attempt,
    Counts,
    Depth,
    JobStatistics,
    Run,
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
# Records by id, which sort like the instants of their job.
_LEDGER = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.id >= $1 AND r.id <= $2 ORDER BY r.id LIMIT $3"
_ATTEMPTS = """
SELECT a.number, a.fence, a.node, a.started_at, a.ended_at, a.outcome, a.failure
FROM {ns}.runs AS r INNER JOIN {ns}.attempts AS a ON a.seq = r.seq
WHERE r.id = $1
"""
_STATISTICS = """
SELECT job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome FROM {ns}.statistics
"""
_STATISTICS_OF = _STATISTICS + "WHERE job = ANY($1::text[])"

# The first runs of some jobs without looking at all that waits: an index by job would slow down every claim.
_FRONT = 500
_NEWEST_OF_JOB = 20
_OF_FRONT = """
FROM (SELECT {job} AS job, r.ready_at, r.seq FROM {ns}.runs AS r WHERE r.seq = ANY($1::bigint[])) AS front
WHERE job = ANY($2::text[])
"""
_READY_OF = "SELECT job, ready_at" + _OF_FRONT
_OWN = "SELECT seq" + _OF_FRONT
# Ids of a schedule's runs sort like their instants.
_FIRST_OF_SCHEDULE = """
SELECT p.name, (
    SELECT r.ready_at FROM {ns}.runs AS r
    WHERE r.id >= p.uid || $2::text AND r.id < p.uid || '.' AND {is_upcoming} ORDER BY r.id LIMIT 1
)
FROM {ns}.plans AS p WHERE p.name = ANY($1::text[])
"""
# The inner SELECT reads nothing but the index of jobs. If it read more, PostgreSQL would scan all runs backwards.
_FIRST_OF_NEWEST = """
SELECT j.job, (
    SELECT min(r.ready_at) FROM {ns}.runs AS r
    WHERE r.seq = ANY(ARRAY(SELECT r.seq FROM {ns}.runs AS r WHERE {run_of_job} ORDER BY r.seq DESC LIMIT $2))
        AND {is_upcoming}
)
FROM {jobs_named}
"""
_FEW_OF_JOB = 2_000
_OF_JOB = "SELECT r.seq FROM {ns}.runs AS r WHERE {run_of_one_job} ORDER BY r.seq DESC LIMIT $2"
_UPCOMING_AMONG = """
SELECT r.seq FROM {ns}.runs AS r WHERE r.seq = ANY($1::bigint[]) AND {is_upcoming}
ORDER BY r.ready_at, r.id LIMIT $2
"""
_ROUNDS = 4
_ENDED = "SELECT state, sum(ended)::bigint FROM {ns}.totals GROUP BY state"
_HELD = """
SELECT {queue}, number FROM (
    SELECT line, count(*) AS number FROM (SELECT line FROM {ns}.held LIMIT $1) AS h GROUP BY line
) AS h
"""
_CLAIMED = """
SELECT {queue}, number FROM (
    SELECT (SELECT r.line FROM {ns}.runs AS r WHERE r.seq = c.seq) AS line, count(*) AS number
    FROM (SELECT seq FROM {ns}.claims LIMIT $1) AS c GROUP BY 1
) AS c WHERE line IS NOT NULL
"""


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


async def ledger(unit: Unit, uid: str, start: datetime, until: datetime, limit: int, now: int) -> list[Run]:
    """The records of a recurring job for a time, by instant; a range that began before is the first."""
    rows = await unit.all(_LEDGER, recurring_id(uid, start), recurring_id(uid, until), limit)
    found = [record.run for record in read_records(rows, now)]
    if found and found[0].due == start:
        return found
    before = read_records(await unit.all(_COVERING, f"{uid}-", recurring_id(uid, start), to_micros(start)), now)
    return [*(record.run for record in before), *found][:limit]


async def attempts(unit: Unit, run_id: str) -> list[Attempt]:
    """The history of a run, oldest first."""
    stored = [read_attempt(row) for row in await unit.all(_ATTEMPTS, run_id)]
    return history_of(await find(unit, run_id, None), stored)


# --- what comes next


async def upcoming(unit: Unit, limit: int, job: str | None, now: int) -> list[Run]:
    """Waiting runs that nothing holds, or that are not placed yet, by ready time, then id."""
    if job is None:
        seqs = await unit.dialect.soonest(unit, limit, None, now)
    else:
        seqs = await _soonest_of_job(unit, limit, job, now)
    return [record.run for record in await by_seqs(unit, seqs, now)]


async def _soonest_of_job(unit: Unit, limit: int, job: str, now: int) -> list[int]:
    """Always exact. Scans all waiting runs only if the job has many runs and too few of the first are its own."""
    of_job = [row[0] for row in await unit.all(_OF_JOB, job, _FEW_OF_JOB + 1)]
    if len(of_job) <= _FEW_OF_JOB:
        return [row[0] for row in await unit.all(_UPCOMING_AMONG, of_job, limit)]
    front = await unit.dialect.soonest(unit, _FRONT, None, now)
    own = {row[0] for row in await unit.all(_OWN, front, [job])}
    first = [seq for seq in front if seq in own][:limit]
    return first if len(first) == limit else await unit.dialect.soonest(unit, limit, job, now)


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


# --- counting what waits and runs, up to a bound

# Waiting runs are counted line by line, each up to an equal share of the bound; what short lines leave is shared among
# the longer ones. Counters that the verbs keep would have to follow the clock, since a pending run becomes queued
# without a change, and every claim would pay for them. Held and claimed runs have no index by line: they are counted in
# the order of their tables, and beyond the bound the queues of the others are unknown.


class _Line(Struct):
    """How many runs of a line are due and not yet due; those beyond the share are not counted."""

    key: Any
    queue: str
    due: int
    later: int
    oldest: int | None


class _Sum(Struct):
    """The contents of one queue during counting."""

    queued: int = 0
    pending: int = 0
    running: int = 0
    oldest: int | None = None
    at_least: frozenset[State] = frozenset()

    def add(self, line: _Line, share: int) -> None:
        self.queued += line.due
        self.pending += line.later
        self.oldest = min((at for at in (self.oldest, line.oldest) if at is not None), default=None)
        more = {State.QUEUED: line.due > share, State.PENDING: line.later > share}
        self.at_least |= {state for state, is_more in more.items() if is_more}

    def depth(self, *, is_paused: bool) -> Depth:
        return Depth(self.queued, self.pending, self.running, instant(self.oldest), is_paused, self.at_least)


async def counts(unit: Unit, now: int | None, scan: int) -> Counts:
    """Runs by state and queue."""
    bound = max(1, scan)
    sums: dict[str, _Sum] = {}
    lines, share = await _waiting(unit, now, bound)
    for line in lines:
        sums.setdefault(line.queue, _Sum()).add(line, share)
    held, claimed = await unit.all(_HELD, bound + 1), await unit.all(_CLAIMED, bound + 1)
    for queue, number in held:
        sums.setdefault(queue, _Sum()).pending += number
    for queue, number in claimed:
        sums.setdefault(queue, _Sum()).running += number
    stopped = await paused(unit)
    for queue in stopped:
        sums.setdefault(queue, _Sum())
    uncounted = {
        state
        for state, rows in ((State.PENDING, held), (State.RUNNING, claimed))
        if sum(number for _, number in rows) > bound
    }
    for entry in sums.values():
        entry.at_least |= uncounted
    states = dict.fromkeys(State, 0) | {State(state): number for state, number in await unit.all(_ENDED)}
    states[State.QUEUED] = sum(entry.queued for entry in sums.values())
    states[State.PENDING] = sum(entry.pending for entry in sums.values())
    states[State.RUNNING] = sum(entry.running for entry in sums.values())
    return Counts(states, {queue: sums[queue].depth(is_paused=queue in stopped) for queue in sorted(sums)})


async def _waiting(unit: Unit, now: int | None, bound: int) -> tuple[list[_Line], int]:
    """All lines that have waiting runs, and the share: up to how many due and later ones the longest are counted."""
    keys = [row[0] for row in await unit.all("{waiting_lines}")]
    short: list[_Line] = []
    longer: list[_Line] = []
    share, left = 0, bound
    for _ in range(_ROUNDS):
        if not keys or max(1, left // len(keys)) <= share:
            break
        share = max(1, left // len(keys))
        lines = [_Line(*row) for row in await unit.all("{line_depths}", now, share + 1, keys)]
        longer = [line for line in lines if max(line.due, line.later) > share]
        keys = [line.key for line in longer]
        short += [line for line in lines if max(line.due, line.later) <= share]
        left = bound - sum(line.due + line.later for line in short)
    return [*short, *longer], share
