"""Backfills: create the runs of past instants, a slice at a time.

Each slice reads what is recorded, lets the rules decide, and writes in one step; an instant whose run was created
meanwhile is left alone. So a backfill can be cut off anywhere and repeated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import islice

from msgspec import Struct

from duly.errors import ConfigurationError, JobNotFound, shown
from duly.model import JobRecord, JobStatus, Run, as_utc, is_job_name, recurring_id, sanitize
from duly.model.event import Emit, RunsSubmitted
from duly.ports import Backend
from duly.rules.backfill import Instant, late_run, recorded, replaced_ranges, rest_of_range, skipped_again
from duly.rules.describe import instant
from duly.rules.schedules import Schedule, step
from duly.runtime.live_config import LiveConfig

MOST_CREATED = 10_000
_SLICE = 200
_MOST_LOOKED_AT = 20_000  # instants of one call
_RANGE_STEPS = 1_000
_SAMPLES = 5
_TICK = timedelta(microseconds=1)

Guard = Callable[[JobRecord], None]


def unguarded(_: JobRecord) -> None:
    """A guard that lets everything pass."""


class Backfill(Struct, frozen=True):
    """What a backfill of the instants from `start` on and before `end` creates; with `dry_run`, what it would create.

    `created` are runs for instants without a record (`missing`) and for skipped ones (`skipped`, by reason). Of the
    missing ones, `unsure` come after the job was created: retention has deleted their records, so they may have run, or
    the job had another schedule then. `present` counts the instants that keep their
    run, by its state. `samples` are the first instants with a new run. `reached` is the first instant that was not
    looked at, because a limit was reached; None if all were. `planned_from` is the instant from which on the leader
    creates the runs, if `end` was later.
    """

    job: str
    start: datetime
    end: datetime
    created: int = 0
    missing: int = 0
    unsure: int = 0
    skipped: dict[str, int] = {}
    present: dict[str, int] = {}
    samples: tuple[datetime, ...] = ()
    last: datetime | None = None
    reached: datetime | None = None
    planned_from: datetime | None = None
    dry_run: bool = False


class Backfills:
    """Belongs to one session on a store. `schedule` returns a record's schedule, None if it is not known here."""

    def __init__(
        self, backend: Backend, live: LiveConfig, schedule: Callable[[JobRecord], Schedule | None], emit: Emit
    ) -> None:
        self._backend = backend
        self._store = backend.store
        self._live = live
        self._schedule = schedule
        self._emit = emit

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        limit: int = 1_000,
        by: str = "a program",
        dry_run: bool = False,
        guard: Guard = unguarded,
    ) -> Backfill:
        """Create the runs of past instants from `start` on and before `end`, the earliest first, `limit` at most."""
        sanitize.checked_whole("limit", limit, 1, MOST_CREATED)
        since, until = as_utc(start, "start", ConfigurationError), as_utc(end, "end", ConfigurationError)
        if since >= until:
            raise ConfigurationError(f"start={instant(since)} is not before end={instant(until)}: nothing lies between")
        record = await self._store.job(name) if is_job_name(name) else None
        if record is None or record.status is JobStatus.REMOVED:
            raise JobNotFound(f"there is no job {shown(name)}: register it, or see `duly jobs`")
        guard(record)
        work = _Work(record, self._schedule_of(record), self._backend.clock.now(), since, until, limit, dry_run)
        while slice_ := work.next_slice():
            taken = work.count(recorded(slice_, await self._records(record, slice_)))
            if taken and not dry_run:
                await self._create(work, taken, sanitize.text_of(by, sanitize.MOST_ACTOR))
            await asyncio.sleep(0)  # a schedule may be slow to compute
        return work.result()

    def _schedule_of(self, record: JobRecord) -> Schedule:
        if record.damage is not None:
            raise ConfigurationError(f"job {shown(record.name)}: {record.damage}; define it again, or remove it")
        if record.spec.schedule is None:
            raise ConfigurationError(
                f"job {shown(record.name)} has no schedule, so no run of it is missing: submit one"
            )
        schedule = self._schedule(record)
        if schedule is None:
            raise ConfigurationError(
                f"the schedule of job {shown(record.name)} is computed by code that this process does not have:"
                " call scheduler.backfill in a program that has it"
            )
        return schedule

    async def _records(self, record: JobRecord, instants: Sequence[datetime]) -> list[Run]:
        """What is recorded about these instants. Records of other instants, of an earlier schedule, may be among it."""
        most = 2 * len(instants)
        found = await self._store.ledger(record.uid, instants[0], instants[-1], most, instants)
        if len(found) < most:
            return found
        reached = found[-1].due
        late = [await self._store.covering(record.uid, due) for due in instants if due >= reached]
        return [*found, *(run for run in late if run is not None)]

    async def _create(self, work: _Work, taken: Sequence[Instant], by: str) -> None:
        record, placement = work.record, self._live.config.placement
        runs = [late_run(record, each.due, work.now, by, placement) for each in taken]
        rests = [await self._rest(work, whole, {each.due for each in taken}) for whole in replaced_ranges(taken)]
        added = await self._store.backfill([*runs, *(rest for rest in rests if rest is not None)])
        new = tuple(run for run, is_new in zip(runs, added, strict=False) if is_new)
        work.created -= len(runs) - len(new)
        if new and self._emit.wants(RunsSubmitted):
            self._emit(RunsSubmitted(new))

    async def _rest(self, work: _Work, whole: Run, taken: set[datetime]) -> Run | None:
        """The record of what is left of a skipped range, from its first instant that has no run of its own."""
        for due in islice(rest_of_range(work.schedule, whole, taken), _RANGE_STEPS):
            if await self._store.run(recurring_id(work.record.uid, due)) is None:
                return skipped_again(work.record, whole, due)
        return None


class _Work:
    """The state of one call: where it is in the schedule, and what it has found."""

    def __init__(
        self,
        record: JobRecord,
        schedule: Schedule,
        now: datetime,
        start: datetime,
        end: datetime,
        limit: int,
        dry_run: bool,
    ) -> None:
        self.record = record
        self.schedule = schedule
        self.now = now
        self.created = 0
        self._asked = start, end
        self._limit = limit
        self._dry_run = dry_run
        self._end = min(end, now + _TICK, *([] if record.cursor is None else [record.cursor]))
        self._due = step(schedule, start - _TICK)
        self._looked_at = 0
        self._missing = self._unsure = 0
        self._skipped: Counter[str] = Counter()
        self._present: Counter[str] = Counter()
        self._samples: list[datetime] = []
        self._last: datetime | None = None
        self._reached: datetime | None = None

    def next_slice(self) -> list[datetime]:
        """The next instants to look at; empty at the end, and when a limit is reached."""
        found: list[datetime] = []
        while self._reached is None and self._due is not None and self._due < self._end and len(found) < _SLICE:
            if self._looked_at >= _MOST_LOOKED_AT:
                self._reached = self._due
                break
            found.append(self._due)
            self._looked_at += 1
            self._due = step(self.schedule, self._due)
        return found

    def count(self, instants: Sequence[Instant]) -> list[Instant]:
        """Count these instants, and return those that get a run; the limit may end that."""
        taken: list[Instant] = []
        for each in instants:
            if not each.is_open:
                assert each.record is not None
                self._present[each.record.state.value] += 1
                continue
            if self.created >= self._limit:
                self._reached = each.due
                break
            self._take(each)
            taken.append(each)
        return taken

    def _take(self, each: Instant) -> None:
        self.created += 1
        self._last = each.due
        if len(self._samples) < _SAMPLES:
            self._samples.append(each.due)
        if each.record is not None:
            self._skipped[each.record.reason or "?"] += 1
            return
        self._missing += 1
        self._unsure += each.due > self.record.created_at

    def result(self) -> Backfill:
        start, end = self._asked
        cursor = self.record.cursor
        return Backfill(
            job=self.record.name,
            start=start,
            end=end,
            created=self.created,
            missing=self._missing,
            unsure=self._unsure,
            skipped=dict(sorted(self._skipped.items())),
            present=dict(sorted(self._present.items())),
            samples=tuple(self._samples),
            last=self._last,
            reached=self._reached,
            planned_from=cursor if cursor is not None and cursor < min(end, self.now) else None,
            dry_run=self._dry_run,
        )
