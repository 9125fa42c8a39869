"""Definitions and planning: saving and removing jobs, finding those to plan, and firing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.rows import micros, read_job, to_json
from duly.backends.sqlite.adding import add
from duly.backends.sqlite.codec import Record, read_records
from duly.backends.sqlite.transitions import by_seqs, end, forget
from duly.backends.sqlite.unit_of_work import WORK, UnitOfWork, as_list
from duly.model import (
    Cause,
    Fired,
    Firing,
    JobChange,
    JobRecord,
    JobStatus,
    State,
    Waiting,
    from_micros,
    recurring_id,
    to_micros,
)
from duly.rules.admission import REMOVED

_BLOCKING = frozenset({JobStatus.PAUSED, JobStatus.REMOVED})

_JOB = """
SELECT j.record, p.cursor, p.plan_at, p.planned, p.name, p.uid, p.revision
FROM {ns}_jobs AS j CROSS JOIN {ns}_plans AS p ON p.name = j.name
WHERE j.name = ?
"""
_JOBS = """
SELECT j.record, p.cursor, p.plan_at, p.planned, p.name, p.uid, p.revision
FROM {ns}_plans AS p CROSS JOIN {ns}_jobs AS j ON j.name = p.name
WHERE p.name > ?
ORDER BY p.name
LIMIT ?
"""
_JOBS_OF = """
SELECT j.record, p.cursor, p.plan_at, p.planned, p.name, p.uid, p.revision
FROM {ns}_plans AS p CROSS JOIN {ns}_jobs AS j ON j.name = p.name
WHERE p.name IN (SELECT value FROM json_each(?)) AND p.name > ?
ORDER BY p.name
LIMIT ?
"""
_KEEP = """
INSERT INTO {ns}_jobs (name, blocked, record) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET blocked = ?2, record = ?3
"""
_KEEP_PLAN = """
INSERT INTO {ns}_plans (name, uid, revision, shard, cursor, plan_at, planned, plannable)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (name) DO UPDATE SET
    uid = ?2, revision = ?3, shard = ?4, cursor = ?5, plan_at = ?6, planned = ?7, plannable = ?8
"""
_FORGET = "DELETE FROM {ns}_jobs WHERE name = ?"
_FORGET_PLAN = "DELETE FROM {ns}_plans WHERE name = ?"

# A job's recurring runs that are due after an instant: their ids sort like their instants.
_LATER = "SELECT {run} FROM {ns}_runs AS r {standing} WHERE r.id > ? AND r.id < ? ORDER BY r.id"

# All runs of a job that wait, held ones included: a walk over all that waits, for what is rarely asked.
_WAITING_OF = """
SELECT seq FROM {ns}_waiting WHERE kind IN (SELECT number FROM {ns}_kinds WHERE job = ?1)
UNION ALL
SELECT seq FROM {ns}_entrants WHERE kind IN (SELECT number FROM {ns}_kinds WHERE job = ?1)
UNION ALL
SELECT seq FROM {ns}_held WHERE kind IN (SELECT number FROM {ns}_kinds WHERE job = ?1)
"""

_EPOCH = "SELECT epoch FROM {ns}_epochs WHERE shard = ?"
_INSTALL = "INSERT INTO {ns}_epochs (shard, epoch) VALUES (?1, ?2) ON CONFLICT (shard) DO UPDATE SET epoch = ?2"

# The jobs of a shard whose time to plan has come, and the time of the one after.
_DUE = """
SELECT j.record, p.cursor, p.plan_at, p.planned, p.name, p.uid, p.revision
FROM {ns}_plans AS p CROSS JOIN {ns}_jobs AS j ON j.name = p.name
WHERE p.shard = ? AND p.plannable = 1 AND p.plan_at IS NOT NULL AND p.plan_at <= ?
ORDER BY p.plan_at, p.name
LIMIT ?
"""
_NEXT = """
SELECT min(plan_at) FROM {ns}_plans WHERE shard = ? AND plannable = 1 AND plan_at IS NOT NULL AND plan_at > ?
"""

_STANDING = """
SELECT p.name, p.uid, p.revision, p.cursor, p.plannable, p.planned
FROM json_each(?) AS wanted CROSS JOIN {ns}_plans AS p ON p.name = wanted.value
"""
# Move plans on. They exist, so the insertion always turns into the update: of many rows at once that is the faster way.
_ADVANCE = """
INSERT INTO {ns}_plans (name, cursor, plan_at, planned, plannable, uid, revision, shard)
VALUES {rows:(?, ?, ?, ?, ?, '', 0, '')}
ON CONFLICT (name) DO UPDATE SET
    cursor = excluded.cursor, plan_at = excluded.plan_at, planned = excluded.planned, plannable = excluded.plannable
"""


# --- records


def find_job(unit: UnitOfWork, name: str) -> JobRecord | None:
    """The record of that name."""
    row = unit.one(_JOB, name)
    return None if row is None else read_job(row)


def find_jobs(unit: UnitOfWork, names: Sequence[str] | None, after: str, limit: int | None) -> list[JobRecord]:
    """All records, or those of the given names, by name; a slice of them."""
    most = -1 if limit is None else limit
    rows = unit.all(_JOBS, after, most) if names is None else unit.all(_JOBS_OF, as_list(names), after, most)
    return [read_job(row) for row in rows]


def _keep(unit: UnitOfWork, record: JobRecord) -> None:
    text = to_json(replace(record, cursor=None, plan_at=None, planned=0))
    unit.run(_KEEP, record.name, int(record.status in _BLOCKING), text)
    unit.run(
        _KEEP_PLAN,
        record.name,
        record.uid,
        record.revision,
        record.shard,
        micros(record.cursor),
        micros(record.plan_at),
        record.planned,
        int(record.plannable),
    )


# --- changing


def save(unit: UnitOfWork, changes: Sequence[JobChange], now: int) -> list[JobRecord | None]:
    """Apply each change whose `expect` is the stored revision."""
    unit.rings |= WORK
    return [_save(unit, change, now) for change in changes]


def _save(unit: UnitOfWork, change: JobChange, now: int) -> JobRecord | None:
    record = change.record
    stored = find_job(unit, record.name)
    if (stored.revision if stored else None) != change.expect:
        return None
    if stored is not None:
        record = replace(record, planned=stored.planned)
        if not change.moves_cursor:
            record = replace(record, cursor=stored.cursor, plan_at=stored.plan_at)
        record = _clear(unit, record, change.waiting, now)
    _keep(unit, record)
    if change.ledger:
        add(unit, change.ledger, now)
    return record


def remove(unit: UnitOfWork, name: str, expect: int, now: int) -> bool:
    """Delete the record of that revision, with its waiting runs."""
    record = find_job(unit, name)
    if record is None or record.revision != expect:
        return False
    _clear(unit, record, Waiting.CANCEL, now)
    unit.run(_FORGET, name)
    unit.run(_FORGET_PLAN, name)
    return True


def _clear(unit: UnitOfWork, record: JobRecord, waiting: Waiting, now: int) -> JobRecord:
    """Treat the job's waiting runs as told; the record with its cursor and count as they are afterwards."""
    if waiting is Waiting.KEEP:
        return record
    early = _not_yet_due(unit, record, now)
    for untouched in early:
        forget(unit, untouched)
    if waiting is Waiting.CANCEL:
        _cancel(unit, waiting_of(unit, record.name), now)
    record = replace(record, planned=record.planned - len(early))
    if waiting is Waiting.REWIND and early:
        earliest = min(untouched.run.due for untouched in early)
        return replace(record, cursor=earliest, plan_at=from_micros(now))
    return record


def waiting_of(unit: UnitOfWork, name: str) -> list[int]:
    """The numbers of a job's waiting runs."""
    return [seq for (seq,) in unit.all(_WAITING_OF, name)]


def cancel_some(unit: UnitOfWork, name: str, expect: int, seqs: Sequence[int], now: int) -> bool:
    """Cancel some of the waiting runs of a job that is about to be removed; False if it has changed meanwhile."""
    record = find_job(unit, name)
    if record is None or record.revision != expect:
        return False
    _cancel(unit, seqs, now)
    return True


def _cancel(unit: UnitOfWork, seqs: Iterable[int], now: int) -> None:
    """Cancel those of these runs that wait."""
    for seq in seqs:
        for record in by_seqs(unit, [seq]):  # ending one may have moved the next
            if record.run.state is State.PENDING:
                end(unit, record, State.CANCELLED, REMOVED, now)


def _not_yet_due(unit: UnitOfWork, job: JobRecord, now: int) -> list[Record]:
    """The job's recurring runs that are pending, never attempted, and due after now."""
    rows = unit.all(_LATER, recurring_id(job.uid, from_micros(now)), f"{job.uid}.")
    later = read_records(unit, rows, now)
    return [record for record in later if _is_untouched(record)]


def _is_untouched(record: Record) -> bool:
    run = record.run
    never = not run.member and not run.failures and not run.losses
    return run.state is State.PENDING and never and run.cause is Cause.SCHEDULE


# --- planning


def install(unit: UnitOfWork, shard: str, proposed: int) -> int:
    """Make a new leader's epoch known."""
    epoch = max(proposed, (_epoch(unit, shard) or 0) + 1)
    unit.run(_INSTALL, shard, epoch)
    return epoch


def _epoch(unit: UnitOfWork, shard: str) -> int | None:
    row = unit.one(_EPOCH, shard)
    return None if row is None else int(row[0])


def due(unit: UnitOfWork, shard: str, limit: int, now: int) -> tuple[list[JobRecord], int | None]:
    """The shard's records whose time to plan has come, and when the next one's comes."""
    rows = unit.all(_DUE, shard, now, limit + 1)
    if len(rows) > limit:
        return [read_job(row) for row in rows[:limit]], rows[limit][2]
    following = unit.one(_NEXT, shard, now)
    return [read_job(row) for row in rows], None if following is None else following[0]


class _Standing(Struct):
    """What a firing is compared with, and changes."""

    uid: str
    revision: int
    cursor: int | None
    plannable: int
    planned: int
    plan_at: int | None = None
    touched: bool = False


def fire(unit: UnitOfWork, firings: Sequence[Firing], shard: str, epoch: int, now: int) -> list[Fired]:
    """Advance cursors and insert runs."""
    if _epoch(unit, shard) != epoch:
        return [Fired.STALE_EPOCH] * len(firings)
    names = as_list({firing.name for firing in firings})
    standing = {row[0]: _Standing(*row[1:]) for row in unit.all(_STANDING, names)}
    applied = [_advance(standing.get(firing.name), firing) for firing in firings]
    _insert(unit, [firing for firing, good in zip(firings, applied, strict=True) if good], standing, now)
    moved = ((name, plan) for name, plan in standing.items() if plan.touched)
    unit.insert(_ADVANCE, [(name, plan.cursor, plan.plan_at, plan.planned, plan.plannable) for name, plan in moved])
    return [Fired.APPLIED if good else Fired.STALE_JOB for good in applied]


def _advance(plan: _Standing | None, firing: Firing) -> bool:
    """Move a job's cursor if it stands where the firing expects it."""
    if plan is None or plan.uid != firing.uid or plan.revision != firing.revision:
        return False
    if not plan.plannable or plan.cursor != to_micros(firing.expect):
        return False
    plan.cursor = micros(firing.cursor)
    plan.plan_at = micros(firing.plan_at)
    plan.plannable = int(firing.cursor is not None)
    plan.touched = True
    return True


def _insert(unit: UnitOfWork, firings: Sequence[Firing], standing: dict[str, _Standing], now: int) -> None:
    """Insert the runs of these firings where their id is new, and count them."""
    runs = [(firing.name, run) for firing in firings for run in firing.runs]
    answers = add(unit, [run for _, run in runs], now) if runs else ()
    for (name, run), put in zip(runs, answers, strict=True):
        standing[name].planned += put.created and run.state is not State.SKIPPED
