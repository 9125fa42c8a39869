"""Planning: which runs a job's schedule requires, from its cursor to a little ahead of now.

Every instant between the cursor and the new one ends in exactly one record: a run, or a skipped run with its reason,
which may cover a range. The planner only stores what is decided here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from duly.model import Cause, Firing, JobRecord, Misfire, Overlap, Run, State, recurring_id
from duly.model.config import LEAST_HORIZON
from duly.rules.admission import group_of
from duly.rules.misfires import MISFIRE, start_by
from duly.rules.placement import is_assigned, to_place
from duly.rules.schedules import Schedule, latest, ready_at, step

MOST_AHEAD = 64
MOST_CAUGHT_UP = 100

_TICK = timedelta(microseconds=1)
_LOOK_AGAIN = timedelta(seconds=60)

# Many schedules share the same instants: plan halfway between two of them, so as not to compete with their runs.
_FARTHEST_FROM_INSTANT = timedelta(seconds=5)


class Outlook(Struct, frozen=True):
    """How far ahead runs are created, how late an instant may be before it counts as missed, and who places runs.

    `legacy`: nodes of 0.1.0 are alive. They hold and retry runs without regard to `start_by`, so runs get none.
    """

    horizon: timedelta
    grace: timedelta
    placement: Literal["queue", "assign"] = "queue"
    legacy: bool = False

    @property
    def reach(self) -> timedelta:
        """How far ahead one step of planning goes; the next step is due when only the horizon is left."""
        return self.horizon * 1.5


def plan(record: JobRecord, schedule: Schedule, now: datetime, outlook: Outlook) -> Firing:
    """One step of planning for a job whose cursor is set: the runs to create, and the new cursor."""
    cursor = record.cursor
    assert cursor is not None
    missed, due = _missed(record, schedule, cursor, now, outlook.grace)
    left = _allowance(record) - sum(run.state is not State.SKIPPED for run in missed)
    planned: list[Run] = []
    while due is not None and due <= now + outlook.reach and len(planned) < min(left, MOST_AHEAD):
        following = step(schedule, due)
        last = len(planned) + 1 >= left
        planned.append(_planned(record, due, None if last else following, outlook.grace))
        due = following
    runs = (*missed, *planned)
    if is_assigned(outlook.placement, record.spec.selector):
        runs = tuple(to_place(run) for run in runs)
    if outlook.legacy:
        runs = tuple(replace(run, start_by=None, strict=False, legacy=True) for run in runs)
    if left <= len(planned):
        due = None
    return Firing(
        uid=record.uid,
        name=record.name,
        revision=record.revision,
        expect=cursor,
        cursor=due,
        plan_at=_plan_again(due, planned, now, outlook),
        runs=runs,
    )


def postpone(record: JobRecord, now: datetime) -> Firing:
    """Leave a job that cannot be planned unchanged and retry it later: it must not block the others."""
    assert record.cursor is not None
    return Firing(
        uid=record.uid,
        name=record.name,
        revision=record.revision,
        expect=record.cursor,
        cursor=record.cursor,
        plan_at=now + _LOOK_AGAIN,
    )


def _allowance(record: JobRecord) -> int:
    """How many more runs the job may have."""
    most = record.spec.max_runs
    return 1 << 62 if most is None else max(0, most - record.planned)


def _plan_again(cursor: datetime | None, planned: list[Run], now: datetime, outlook: Outlook) -> datetime | None:
    if cursor is None:
        return None
    if len(planned) == MOST_AHEAD:  # a fast schedule: continue when half of these are used up
        return max(now, planned[MOST_AHEAD // 2].due)
    off = min(_FARTHEST_FROM_INSTANT, outlook.horizon / 4)
    if planned:
        off = min(off, (cursor - planned[-1].due) / 2)
    return cursor - outlook.horizon - off


def earliest_instant(plan_at: datetime, now: datetime, limit: int) -> datetime:
    """The earliest instant beyond those planned that a job with this `plan_at`, or a later one, can have.

    As far as it can be among the first `limit` of all runs: a job with a fast schedule is planned later than the
    horizon before its cursor, but has half of `MOST_AHEAD` runs before it. Postponed planning counts from the new time.
    """
    if plan_at <= now or limit > MOST_AHEAD // 2:
        return plan_at
    return plan_at + timedelta(seconds=LEAST_HORIZON)


def _missed(
    record: JobRecord, schedule: Schedule, cursor: datetime, now: datetime, grace: timedelta
) -> tuple[list[Run], datetime | None]:
    """The records for instants that are late by more than `grace`, and the first instant after them."""
    cut = now - grace
    last = latest(schedule, cursor, cut) if cursor <= cut else None
    if last is None:
        return [], cursor
    match record.spec.misfire:
        case Misfire.SKIP:
            runs = [skipped(record, cursor, last, MISFIRE)]
        case Misfire.LATEST:
            runs = _catch_up(record, schedule, cursor, last, grace, most=1)
        case Misfire.ALL:
            runs = _catch_up(record, schedule, cursor, last, grace, most=MOST_CAUGHT_UP)
        case _:
            assert_never(record.spec.misfire)
    return runs, step(schedule, last)


def _catch_up(
    record: JobRecord, schedule: Schedule, cursor: datetime, last: datetime, grace: timedelta, most: int
) -> list[Run]:
    """Runs for the latest of the missed instants, and one skipped record for all before them."""
    allowed = _allowance(record)
    most = min(most, allowed)
    kept: list[datetime] = []
    before: datetime | None = last
    while before is not None and len(kept) < most:
        kept.append(before)
        before = latest(schedule, cursor, before - _TICK) if before > cursor else None
    following = step(schedule, last) if allowed > len(kept) else None
    runs = [_planned(record, due, following, grace) for due in reversed(kept)]
    return runs if before is None else [skipped(record, cursor, before, MISFIRE), *runs]


def _planned(record: JobRecord, due: datetime, following: datetime | None, grace: timedelta) -> Run:
    """The run for one due instant, with the time until which it may start; `following` is the next instant."""
    run = run_for(record, due)
    misfire = record.spec.misfire
    if misfire is Misfire.ALL:
        return run
    after = None if following is None else ready_at(record.uid, following, _jitter(record))
    return replace(run, start_by=start_by(misfire, run.ready_at, after, grace), strict=misfire is Misfire.SKIP)


def run_for(record: JobRecord, due: datetime) -> Run:
    """The run of a recurring job for one due instant."""
    spec = record.spec
    group, when_full = group_of(spec.name, spec.overlap or Overlap.SKIP)
    return Run(
        id=recurring_id(record.uid, due),
        job=spec.name,
        handler=spec.handler,
        due=due,
        ready_at=ready_at(record.uid, due, _jitter(record)),
        uid=record.uid,
        revision=record.revision,
        cause=Cause.SCHEDULE,
        queue=spec.queue,
        priority=spec.priority,
        payload=spec.payload,
        policy=spec.policy,
        group=group,
        when_full=when_full,
    )


def _jitter(record: JobRecord) -> timedelta:
    schedule = record.spec.schedule
    return timedelta(0) if schedule is None else schedule.jitter


def skipped(record: JobRecord, first: datetime, last: datetime, reason: str) -> Run:
    """The record of instants that get no run, from the first to the last."""
    return Run(
        id=recurring_id(record.uid, first),
        job=record.spec.name,
        handler=record.spec.handler,
        due=first,
        ready_at=first,
        uid=record.uid,
        revision=record.revision,
        cause=Cause.SCHEDULE,
        queue=record.spec.queue,
        state=State.SKIPPED,
        reason=reason,
        until=last if last > first else None,
    )
