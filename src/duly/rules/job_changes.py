"""Job changes: what happens to a job's record when it is registered, deployed, paused, resumed, retired or removed.

Each is a function from the record as it was read to the change to apply; the store compares the revision. A deploy
never un-pauses, never moves the cursor of an unchanged schedule, and never leaves a removed job planned.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from duly.model import JobChange, JobRecord, JobSpec, Origin, Pause, Run, Waiting, sanitize
from duly.model.job import Defined
from duly.rules.definitions import past
from duly.rules.misfires import MISFIRE
from duly.rules.planning import skipped
from duly.rules.schedules import Schedule, first_instant, latest, step

PAUSED = "paused"
NO_HANDLER = "no_handler"
CHANGED = "schedule changed"

_TICK = timedelta(microseconds=1)


def create(
    uid: str,
    spec: JobSpec,
    schedule: Schedule | None,
    origin: Origin,
    now: datetime,
    code_since: datetime | None,
    by: str | None = None,
) -> JobChange:
    """A job of a new name. `by` says who defines it."""
    cursor = None if schedule is None else first_instant(schedule, now)
    record = JobRecord(
        uid=uid,
        spec=spec,
        revision=1,
        origin=origin,
        created_at=now,
        updated_at=now,
        cursor=cursor,
        plan_at=None if cursor is None else now,
        code_since=code_since,
        defined=_defined(1, now, by),
    )
    return JobChange(record, None)


def restore(
    uid: str,
    tombstone: JobRecord,
    spec: JobSpec,
    schedule: Schedule | None,
    now: datetime,
    code_since: datetime | None,
    by: str | None = None,
) -> JobChange:
    """A removed job that is registered again: a new identity in the old place."""
    born = create(uid, spec, schedule, tombstone.origin, now, code_since).record
    revision = tombstone.revision + 1
    again = replace(born, revision=revision, defined=_defined(revision, now, by))
    return JobChange(again, tombstone.revision, moves_cursor=True, redefines=True, replaces=past(tombstone))


def deploy(
    record: JobRecord,
    spec: JobSpec,
    schedule: Schedule | None,
    now: datetime,
    code_since: datetime | None,
    by: str | None = None,
) -> JobChange | None:
    """A definition that may differ from the one stored: None if nothing is to be written.

    Runs that are not yet due are replaced, so that they carry the new definition.
    """
    if spec.digest() == record.spec.digest():
        return None
    if code_since is not None and record.code_since is not None and code_since < record.code_since:
        return None  # a newer node's code is in force
    defined = _defined(record.revision + 1, now, by)
    after = _next(record, now, spec=spec, code_since=code_since, defined=defined)
    redefines, replaces = record.origin is Origin.CODE, past(record)
    if spec.schedule == record.spec.schedule:
        return JobChange(after, record.revision, Waiting.REWIND, redefines=redefines, replaces=replaces)
    cursor = None if schedule is None else first_instant(schedule, now)
    unplanned = record.cursor if record.cursor is not None and record.cursor <= now else None
    ledger = () if unplanned is None else (skipped(record, unplanned, now, CHANGED),)
    moved = replace(after, cursor=cursor, plan_at=None if cursor is None else now)
    return JobChange(moved, record.revision, Waiting.DROP, True, ledger, redefines, replaces)


def pause(record: JobRecord, now: datetime, note: str) -> JobChange | None:
    """Stop planning and starting; None if it is paused already."""
    if record.paused is not None:
        return None
    return JobChange(_next(record, now, paused=Pause(now, note)), record.revision, Waiting.REWIND)


def resume(record: JobRecord, schedule: Schedule | None, now: datetime) -> JobChange | None:
    """Resume; the instants missed meanwhile become one skipped record. None if it is not paused."""
    if record.paused is None:
        return None
    return _go_on(record, _next(record, now, paused=None), schedule, now, PAUSED, record.paused.at)


def retire(record: JobRecord, now: datetime) -> JobChange | None:
    """Stop planning a job for which no live node has a handler; None if it is retired already."""
    if record.retired_at is not None:
        return None
    return JobChange(_next(record, now, retired_at=now), record.revision, Waiting.REWIND)


def revive(record: JobRecord, schedule: Schedule | None, now: datetime) -> JobChange | None:
    """Its handler is back; the instants missed meanwhile become one skipped record. None if it is not retired."""
    if record.retired_at is None:
        return None
    return _go_on(record, _next(record, now, retired_at=None), schedule, now, NO_HANDLER)


def remove(record: JobRecord, now: datetime) -> JobChange | None:
    """Leave a tombstone, so that the next deploy does not bring the job back. None if it is removed already."""
    if record.removed_at is not None:
        return None
    redefines = record.origin is Origin.CODE
    return JobChange(_next(record, now, removed_at=now), record.revision, Waiting.CANCEL, redefines=redefines)


def _defined(revision: int, now: datetime, by: str | None) -> Defined:
    return Defined(revision, now, None if by is None else sanitize.text_of(by, sanitize.MOST_ACTOR))


def _next(record: JobRecord, now: datetime, **changes: object) -> JobRecord:
    """The next revision. Where its definition comes from is written down, also for a record of 0.1.0."""
    kept = {"defined": record.version} | changes
    return replace(record, revision=record.revision + 1, updated_at=now, **kept)


def _go_on(
    before: JobRecord,
    after: JobRecord,
    schedule: Schedule | None,
    now: datetime,
    why: str,
    since: datetime | None = None,
) -> JobChange:
    """Resume planning from now on, unless something else still stops it. `since` is when `why` stopped it.

    With `since` None, it was stopped from the cursor on: before a job is retired, no node has its handler either.
    """
    cursor = before.cursor
    if cursor is None or schedule is None or not after.plannable:
        return JobChange(after, before.revision)
    last = latest(schedule, cursor, now) if cursor <= now else None
    if last is None:
        return JobChange(replace(after, plan_at=now), before.revision, moves_cursor=True)
    moved = replace(after, cursor=step(schedule, last), plan_at=now)
    return JobChange(moved, before.revision, moves_cursor=True, ledger=_ledger(before, schedule, last, why, since))


def _ledger(record: JobRecord, schedule: Schedule, last: datetime, why: str, since: datetime | None) -> tuple[Run, ...]:
    """Skipped records for the instants up to `last`: a misfire for those before `since`, `why` for the others."""
    cursor = record.cursor
    assert cursor is not None
    missed = latest(schedule, cursor, since - _TICK) if since is not None and cursor < since else None
    if missed is None:
        return (skipped(record, cursor, last, why),)
    first = step(schedule, missed)
    early = skipped(record, cursor, missed, MISFIRE)
    return (early,) if first is None or first > last else (early, skipped(record, first, last, why))
