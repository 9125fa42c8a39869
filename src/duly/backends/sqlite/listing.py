"""Looking runs up. Runs on the readers: nothing here changes anything. Pages of runs are in `pages`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from duly.backends.rows import counts_of, read_attempt, read_statistics
from duly.backends.sqlite.codec import read_records
from duly.backends.sqlite.operating import paused
from duly.backends.sqlite.placing import first_unplaced
from duly.backends.sqlite.unit_of_work import Row, UnitOfWork, as_list
from duly.backends.sqlite.waiting_index import survey
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

_BY_IDS = "SELECT {run} FROM json_each(?) AS wanted CROSS JOIN {ns}_runs AS r ON r.id = wanted.value {standing}"
_BY_SEQS = "SELECT {run} FROM json_each(?) AS wanted CROSS JOIN {ns}_runs AS r ON r.seq = wanted.value {standing}"

# The record of a range of instants around one: ids of a job's runs sort like their instants.
_COVERING = """
SELECT {run} FROM {ns}_runs AS r {standing}
WHERE r.id >= ? AND r.id <= ? AND r.until IS NOT NULL AND r.until >= ?
ORDER BY r.id DESC
LIMIT 1
"""

_ATTEMPTS = """
SELECT a.number, a.fence, a.node, a.started_at, a.ended_at, a.outcome, a.failure
FROM {ns}_runs AS r CROSS JOIN {ns}_attempts AS a ON a.seq = r.seq
WHERE r.id = ?
"""

_SOONEST = "SELECT ready_at, id, seq FROM {ns}_waiting WHERE line = ? ORDER BY ready_at, id LIMIT ?"
_SOONEST_TO_ENTER = "SELECT ready_at, id, seq FROM {ns}_entrants WHERE line = ? ORDER BY ready_at, id LIMIT ?"

# Walk over all that waits: an index by kind would make every claim pay for what few people ask.
_SOONEST_OF_JOB = """
SELECT ready_at, id, seq FROM {ns}_waiting WHERE kind IN (SELECT number FROM {ns}_kinds WHERE job = ?1)
UNION ALL
SELECT ready_at, id, seq FROM {ns}_entrants WHERE kind IN (SELECT number FROM {ns}_kinds WHERE job = ?1)
UNION ALL
SELECT ready_at, id, seq FROM {ns}_held
WHERE hold = ?3 AND kind IN (SELECT number FROM {ns}_kinds WHERE job = ?1)
ORDER BY 1, 2
LIMIT ?2
"""
_FIRST_READY = """
SELECT kind, min(ready_at) FROM {ns}_waiting GROUP BY kind
UNION ALL
SELECT kind, min(ready_at) FROM {ns}_entrants GROUP BY kind
UNION ALL
SELECT kind, min(ready_at) FROM {ns}_held WHERE hold = ? GROUP BY kind
"""

_STATISTICS = """
SELECT job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome FROM {ns}_statistics
"""
_STATISTICS_OF = """
SELECT s.job, s.completed, s.failed, s.cancelled, s.lost, s.retried, s.seconds, s.last_run_at, s.last_outcome
FROM json_each(?) AS wanted CROSS JOIN {ns}_statistics AS s ON s.job = wanted.value
"""

_ENDED = "SELECT state, ended FROM {ns}_totals"
# What waits and runs, by line: due, not yet due or held, running, and the first ready time of what is due. ?1 is now.
_DEPTHS = """
SELECT line, total(ready_at <= ?1), total(ready_at > ?1), 0, min(CASE WHEN ready_at <= ?1 THEN ready_at END)
FROM {ns}_waiting GROUP BY line
UNION ALL
SELECT line, total(ready_at <= ?1), total(ready_at > ?1), 0, min(CASE WHEN ready_at <= ?1 THEN ready_at END)
FROM {ns}_entrants GROUP BY line
UNION ALL
SELECT line, 0, count(*), 0, NULL FROM {ns}_held GROUP BY line
UNION ALL
SELECT r.line, 0, 0, count(*), NULL
FROM {ns}_claims AS c CROSS JOIN {ns}_runs AS r ON r.seq = c.seq GROUP BY r.line
"""


# --- single runs


def find(unit: UnitOfWork, run_id: str, now: int) -> Run | None:
    """One run as it stands."""
    rows = unit.all(_BY_IDS, as_list([run_id]))
    return _first(unit, rows, now)


def _first(unit: UnitOfWork, rows: Sequence[Row], now: int | None) -> Run | None:
    """The run of the first row, if there is one."""
    records = read_records(unit, rows[:1], now)
    return records[0].run if records else None


def ended_of(unit: UnitOfWork, run_ids: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Those of these runs that have ended, and the ids of those that are gone."""
    runs = {record.run.id: record.run for record in read_records(unit, unit.all(_BY_IDS, as_list(run_ids)))}
    return [run for run in runs.values() if run.final], [run_id for run_id in run_ids if run_id not in runs]


def covering(unit: UnitOfWork, uid: str, at: datetime, now: int) -> Run | None:
    """The record of a recurring job that accounts for an instant."""
    exact = recurring_id(uid, at)
    run = find(unit, exact, now)
    if run is not None:
        return run
    return _first(unit, unit.all(_COVERING, f"{uid}-", exact, to_micros(at)), now)


def attempts(unit: UnitOfWork, run_id: str) -> list[Attempt]:
    """The history of a run, oldest first."""
    return told(find(unit, run_id, 0), [read_attempt(row) for row in unit.all(_ATTEMPTS, run_id)])


# --- what comes next


def upcoming(unit: UnitOfWork, limit: int, job: str | None, now: int) -> list[Run]:
    """Waiting runs that nothing holds, or that are yet to be placed, by ready time, then id."""
    rows = _soonest(unit, limit, now) if job is None else unit.all(_SOONEST_OF_JOB, job, limit, UNPLACED)
    seqs = [seq for _, _, seq in sorted(rows)[:limit]]
    return [record.run for record in read_records(unit, unit.all(_BY_SEQS, as_list(seqs)), now)]


def _soonest(unit: UnitOfWork, limit: int, now: int) -> Iterable[Row]:
    for line in survey(unit, now):
        yield from unit.all(_SOONEST_TO_ENTER if line.entering else _SOONEST, line.number, limit)
    yield from first_unplaced(unit, limit)


def next_runs(unit: UnitOfWork) -> dict[str, datetime]:
    """For every job that has runs which are upcoming: the earliest ready time among them."""
    first: dict[str, int] = {}
    for number, ready_at in unit.all(_FIRST_READY, UNPLACED):
        job = unit.names.kind(unit, number).job
        first[job] = min(ready_at, first.get(job, ready_at))
    return {job: from_micros(ready_at) for job, ready_at in first.items()}


# --- counters


def statistics(unit: UnitOfWork, jobs: Sequence[str] | None) -> dict[str, JobStatistics]:
    """Counters by job; a job that never ended a run is left out."""
    rows = unit.all(_STATISTICS) if jobs is None else unit.all(_STATISTICS_OF, as_list(jobs))
    return {row[0]: read_statistics(row) for row in rows}


def counts(unit: UnitOfWork, now: int) -> Counts:
    """Runs by state and queue."""
    lines = [
        (unit.names.home(unit, line)[0], int(queued), int(pending), running, oldest)
        for line, queued, pending, running, oldest in unit.all(_DEPTHS, now)
    ]
    return counts_of(lines, unit.all(_ENDED), paused(unit))
