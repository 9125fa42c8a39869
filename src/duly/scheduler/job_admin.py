"""Definitions: jobs in the store, as operators and deploys change them.

Each operation reads the record, lets a rule decide, and saves with a comparison of revisions; a lost race is tried
again from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from duly.errors import ConfigurationError, InvalidSchedule, JobChanged, JobNotFound, shown
from duly.model import (
    Ids,
    JobChange,
    JobRecord,
    JobSpec,
    JobStatistics,
    JobStatus,
    Origin,
    is_job_name,
    sanitize,
)
from duly.model.event import Emit, JobSaved
from duly.model.holds import hold_for_job
from duly.ports import Backend
from duly.rules import job_changes
from duly.rules.planning import earliest_instant, run_for
from duly.rules.schedules import Schedule, schedule_of, step
from duly.rules.statistics import combine
from duly.runtime.live_config import LiveConfig
from duly.scheduler.capability_checks import check_deliveries, check_placement, check_schedules
from duly.scheduler.job import Job, bound_schedule
from duly.scheduler.known_names import no_such_job
from duly.scheduler.next_instants import NextInstants
from duly.scheduler.registry import Registry
from duly.scheduler.views import JobView, Upcoming, job_view

_SLICE = 500
_RACES = 20
_AT_A_TIME = 50
_LOOKED_AT = 50  # jobs that `upcoming` reads with one call, in addition to the requested number
_MOST_LOOKED_AT = 2_000  # jobs whose instants `upcoming` compares

Decide = Callable[[JobRecord], JobChange | None]
Guard = Callable[[JobRecord | None], None]
About = Callable[[int], AbstractContextManager[None]]


def unguarded(_: JobRecord | None) -> None:
    """A guard that lets everything pass."""


def unnumbered(_: int) -> AbstractContextManager[None]:
    """Adds nothing to errors."""
    return nullcontext()


class JobAdmin:
    """What can be done to jobs. `changed` is called after every write.

    A `guard` is called with the record that a change is compared with, None for a new job; to refuse the change, it
    raises the error for the caller. If the record was changed meanwhile, the guard is called again.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        live: LiveConfig,
        ids: Ids,
        now: Callable[[], datetime],
        emit: Emit,
        changed: Callable[[], None],
    ) -> None:
        self._backend = backend
        self._store = backend.store
        self._queue = backend.queue
        self._registry = registry
        self._live = live
        self._ids = ids
        self._now = now
        self._emit = emit
        self._changed = changed

    # --- defining

    async def define(
        self, job: Job, guard: Guard = unguarded, by: str | None = None
    ) -> tuple[JobRecord, JobRecord | None]:
        """Create or replace a job that the API owns, on behalf of `by`; return the record, and the previous one.

        Raises `JobChanged` if the API does not own the job.
        """
        [defined] = await self.define_each([job], [guard], by=by)
        return defined

    async def define_each(
        self, jobs: Sequence[Job], guards: Sequence[Guard], about: About = unnumbered, by: str | None = None
    ) -> list[tuple[JobRecord, JobRecord | None]]:
        """The same for jobs of different names: nothing is written unless all can be.

        `about(position)` returns a context manager that encloses the work on one job, so that errors can name the job.
        """
        await check_deliveries({job.name: job.delivery for job in jobs}, self._backend, self._live.config)
        specs = []
        for place, job in enumerate(jobs):
            await _share_loop(place)
            with about(place):
                check_placement(job.name, job.selector, self._live.config)
                specs.append(self._registry.spec_for_handler(job, self._live.config))
        await check_schedules(specs, self._backend.coordinator)
        defined: dict[int, tuple[JobRecord, JobRecord | None]] = {}
        for _ in range(_RACES):
            left = [place for place in range(len(jobs)) if place not in defined]
            if not left:
                return [defined[place] for place in range(len(jobs))]
            stored = {record.name: record for record in await self._store.jobs([jobs[place].name for place in left])}
            wanted: list[tuple[int, JobChange]] = []
            for place in left:
                job, record = jobs[place], stored.get(jobs[place].name)
                await _share_loop(place)
                with about(place):
                    guards[place](record)
                    change = self._definition(job, specs[place], record, by)
                if change is not None:
                    wanted.append((place, change))
                elif record is not None:
                    defined[place] = record, record
            saved = await self._store.save([change for _, change in wanted]) if wanted else []
            for (place, _), record in zip(wanted, saved, strict=True):
                if record is not None:
                    defined[place] = record, stored.get(record.name)
                    self._emit(JobSaved.of(record, "defined"))
            if any(saved):
                self._changed()
        raise _busy(next(job.name for place, job in enumerate(jobs) if place not in defined))

    def _definition(self, job: Job, spec: JobSpec, record: JobRecord | None, by: str | None) -> JobChange | None:
        _refuse_foreign(job.name, record)
        now, schedule = self._now(), bound_schedule(job, spec)
        if record is None:
            return job_changes.create(self._ids.new(), spec, schedule, Origin.API, now, None, by)
        return job_changes.deploy(record, spec, schedule, now, None, by)

    # --- operating

    async def pause(self, name: str, note: str, guard: Guard = unguarded) -> JobRecord:
        why = sanitize.text_of(note, sanitize.MOST_REASON)
        return await self._edit(name, lambda record: job_changes.pause(record, self._now(), why), "paused", guard)

    async def resume(self, name: str, guard: Guard = unguarded) -> JobRecord:
        record = await self._edit(
            name, lambda record: job_changes.resume(record, self.schedule(record), self._now()), "resumed", guard
        )
        while await self._queue.unhold(hold_for_job(name), _SLICE):
            pass
        return record

    async def remove(self, name: str, guard: Guard = unguarded) -> None:
        """Code would bring its job back at the next start: it leaves a tombstone. Others are forgotten."""
        for _ in range(_RACES):
            record = await self.record(name)
            guard(record)
            if record.origin is Origin.CODE:
                await self._edit(name, lambda record: job_changes.remove(record, self._now()), "removed", guard)
                return
            if await self._store.remove(name, record.revision):
                self._emit(JobSaved.of(record, "removed"))
                self._changed()
                return
        raise _busy(name)

    async def restore(self, name: str, guard: Guard = unguarded) -> JobRecord:
        """Plan a removed job again, as it was defined. Only code leaves a definition behind (`remove`)."""
        for _ in range(_RACES):
            record = await self._store.job(name) if is_job_name(name) else None
            guard(record)
            change = self._restoration(name, record)
            [saved] = await self._store.save([change])
            if saved is not None:
                self._emit(JobSaved.of(saved, "restored"))
                self._changed()
                return saved
        raise _busy(name)

    def _restoration(self, name: str, record: JobRecord | None) -> JobChange:
        if record is None:
            raise JobNotFound(no_definition(name))
        if record.status is not JobStatus.REMOVED:
            raise JobChanged(f"job {shown(name)} has not been removed: it is {record.status.value}")
        if record.damage is not None:
            raise ConfigurationError(f"job {shown(name)}: {record.damage}; define it again")
        schedule = self.schedule(record)
        if schedule is None and record.spec.schedule is not None:
            raise ConfigurationError(
                f"job {shown(name)} has a schedule that only its own code can compute: register it with restore=True"
            )
        return job_changes.restore(self._ids.new(), record, record.spec, schedule, self._now(), record.code_since)

    async def _edit(self, name: str, decide: Decide, what: str, guard: Guard) -> JobRecord:
        for _ in range(_RACES):
            record = await self.record(name)
            guard(record)
            if record.damage is not None:
                raise ConfigurationError(f"job {shown(name)}: {record.damage}; define it again, or remove it")
            change = decide(record)
            if change is None:
                return record
            [saved] = await self._store.save([change])
            if saved is not None:
                self._emit(JobSaved.of(saved, what))
                self._changed()
                return saved
        raise _busy(name)

    # --- reading

    async def record(self, name: str) -> JobRecord:
        """The record of a job that has not been removed."""
        record = await self._store.job(name) if is_job_name(name) else None
        if record is None or record.status is JobStatus.REMOVED:
            raise await no_such_job(self._store, name)
        return record

    async def view(self, name: str) -> JobView:
        record = await self.record(name)
        statistics = await self._store.statistics([name])
        first = await self._store.upcoming(1, name)  # exact, which `next_runs` need not be
        return self._view(record, statistics.get(name), first[0].ready_at if first else None)

    async def handler_statistics(self, handler: str) -> JobStatistics:
        """The counters of a handler: of its recurring jobs, and of the job that has its name.

        These are the jobs that an index leads to. They are read in slices, so that no call to the store is long.
        """
        if not is_job_name(handler):
            return JobStatistics()
        own = await self._store.statistics([handler]) if await self._has_own_job(handler) else {}
        parts = [*own.values()]
        for retired in (False, True):
            after = ""
            while records := await self._store.jobs_of(handler, retired=retired, after=after, limit=_SLICE):
                names = [record.name for record in records if record.name != handler]
                parts += (await self._store.statistics(names)).values() if names else []
                after = records[-1].name
        return combine(parts)

    async def _has_own_job(self, handler: str) -> bool:
        """Whether the job that has the handler's name executes it."""
        record = await self._store.job(handler)
        return record is None or record.spec.handler == handler

    async def views(self, *, removed: bool = False) -> list[JobView]:
        """All jobs, read in pages, so that no call to the store is long."""
        views: list[JobView] = []
        after: str | None = ""
        while after is not None:
            some, after = await self.page(after, _SLICE, removed=removed)
            views += some
        return views

    async def page(self, after: str, limit: int, *, removed: bool = False) -> tuple[list[JobView], str | None]:
        """Jobs by name, those after `after`, at most `limit`; and where to go on, None at the end."""
        records = await self._store.jobs(after=after, limit=limit + 1)
        more, records = len(records) > limit, records[:limit]
        alive = [record for record in records if removed or record.status is not JobStatus.REMOVED]
        names = [record.name for record in alive]
        statistics = await self._store.statistics(names)
        first = await self._store.next_runs(names)
        views = [self._view(record, statistics.get(record.name), first.get(record.name)) for record in alive]
        return views, records[-1].name if more else None

    def _view(self, record: JobRecord, statistics: JobStatistics | None, waiting: datetime | None) -> JobView:
        known = [at for at in (waiting, record.cursor) if at is not None]
        schedule = self.schedule(record)
        return job_view(record, statistics or JobStatistics(), min(known, default=None), schedule)

    async def upcoming(self, limit: int, job: str | None) -> list[Upcoming]:
        """The next runs: those that exist already and those that the schedules will create.

        Looks at the jobs that are planned next, and stops where the others come later. It looks at a bounded number of
        jobs: while the planner is far behind, or where thousands of jobs share an instant, one of the others may be
        earlier. Schedules are computed a few at a time, so that other tasks on the event loop can run.
        """
        sanitize.checked_whole("limit", limit, 1, sanitize.MOST_LISTED)
        if job is not None and not is_job_name(job):
            return []
        made = [Upcoming(run.job, run.ready_at, run.due, run.id) for run in await self._store.upcoming(limit, job)]
        coming = NextInstants(made, limit)
        if job is not None:
            coming.add(self._instants(record) for record in await self._store.jobs([job]))
        else:
            await self._look_ahead(coming, limit)
        return await coming.first()

    async def _look_ahead(self, coming: NextInstants, limit: int) -> None:
        """Add the instants of the jobs that are planned next, until those of all others come later."""
        now, known = await self._store.time(), 0
        for most in (_LOOKED_AT + limit, max(_MOST_LOOKED_AT, 2 * limit)):
            plans = await self._store.next_plans(most)
            while known < len(plans):
                part = plans[known : known + _LOOKED_AT + limit]
                if coming.complete(earliest_instant(part[0][1], now, limit)):
                    return
                records = {record.name: record for record in await self._store.jobs([name for name, _ in part])}
                coming.add(self._instants(records[name]) for name, _ in part if name in records)
                known += len(part)
                await asyncio.sleep(0)
            if len(plans) < most or coming.complete(earliest_instant(plans[-1][1], now, limit)):
                return

    def _instants(self, record: JobRecord) -> Iterator[Upcoming]:
        """The instants of a job beyond those planned: of a schedule that only other code knows, the next one."""
        due = record.cursor if record.plannable else None
        left = None if record.spec.max_runs is None else record.spec.max_runs - record.planned
        schedule = None
        while due is not None and left != 0:
            yield Upcoming(record.name, run_for(record, due).ready_at, due)
            schedule = schedule or self.schedule(record)
            due = None if schedule is None else step(schedule, due)
            left = None if left is None else left - 1

    def schedule(self, record: JobRecord) -> Schedule | None:
        """The schedule of a job, None where only another process's code can compute it."""
        try:
            return schedule_of(record, self._registry.schedule_in_code)
        except InvalidSchedule:
            return None


async def _share_loop(place: int) -> None:
    """Let other tasks on the event loop run while many jobs are checked."""
    if place % _AT_A_TIME == _AT_A_TIME - 1:
        await asyncio.sleep(0)


def _refuse_foreign(name: str, record: JobRecord | None) -> None:
    """Raise unless the API owns the job."""
    if record is not None and record.origin is not Origin.API:
        raise JobChanged(
            f"job {shown(name)} belongs to the {record.origin.value}: change it there, or choose another name"
        )


def no_definition(name: str) -> str:
    """Why a job cannot be restored that the store does not have."""
    return (
        f"the store has no definition of job {shown(name)}: it never existed, or it was defined by the API or a job"
        " file, whose definitions are deleted with the job; define it again"
    )


def _busy(name: str) -> JobChanged:
    return JobChanged(f"job {shown(name)} keeps being changed by other processes: try again")
