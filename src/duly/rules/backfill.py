"""Backfill: runs for past instants of a schedule that had none. An instant whose run exists is never repeated.

A backfilled run has the id of its instant, so it cannot be created twice, and the job's present definition. It is ready
when it is created, not at its instant: it waits behind what waits already. It is late on purpose, so it has no
`start_by`. It waits for other runs of its job where a scheduled one would be skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duly.model import Cause, JobRecord, Run, State, WhenFull
from duly.model.run import BACKFILLED_BY
from duly.rules.placement import is_assigned, to_place
from duly.rules.planning import run_for, skipped
from duly.rules.schedules import Schedule, step


class Instant(Struct, frozen=True):
    """A due instant and what is recorded about it: its run, or a skip, which may cover a range. None: nothing."""

    due: datetime
    record: Run | None

    @property
    def is_open(self) -> bool:
        """Whether a run may be created for it."""
        return self.record is None or self.record.state is State.SKIPPED


def recorded(instants: Sequence[datetime], records: Sequence[Run]) -> list[Instant]:
    """Instants with what accounts for them among records of their job: their own run first, else a range."""
    own = {run.due: run for run in records}
    ranges = [run for run in records if run.until is not None]
    return [Instant(due, own.get(due) or _range_of(due, ranges)) for due in instants]


def _range_of(due: datetime, ranges: Sequence[Run]) -> Run | None:
    return next((run for run in ranges if run.until is not None and run.due <= due <= run.until), None)


def late_run(record: JobRecord, due: datetime, now: datetime, by: str, placement: Literal["queue", "assign"]) -> Run:
    """The run for a past instant."""
    run = run_for(record, due)
    run = replace(
        run,
        cause=Cause.BACKFILL,
        ready_at=now,
        when_full=run.when_full if run.group is None else WhenFull.QUEUE,
        headers={BACKFILLED_BY: by},
    )
    return to_place(run) if is_assigned(placement, record.spec.selector) else run


def backfilled_by(run: Run) -> str | None:
    """Who had a run created for a past instant; None for any other run."""
    return None if run.headers is None else run.headers.get(BACKFILLED_BY)


def replaced_ranges(taken: Sequence[Instant]) -> list[Run]:
    """The skipped ranges whose record must go, because its id is that of an instant which gets a run."""
    return [
        each.record
        for each in taken
        if each.record is not None and each.record.until is not None and each.record.due == each.due
    ]


def rest_of_range(schedule: Schedule, whole: Run, taken: Collection[datetime]) -> Iterator[datetime]:
    """The instants of a skipped range that still get no run; the first without a record begins the rest."""
    assert whole.until is not None
    due = step(schedule, whole.due)
    while due is not None and due <= whole.until:
        if due not in taken:
            yield due
        due = step(schedule, due)


def skipped_again(record: JobRecord, whole: Run, first: datetime) -> Run:
    """The record of the rest of a skipped range."""
    assert whole.until is not None
    return skipped(record, first, whole.until, whole.reason or "")
