"""Filling a store in bulk: schedules, waiting runs and ended runs, through the verbs of the ports.

A store is filled to one size after the other, so that each step writes only the difference.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from duly.errors import DulyError
from duly.model import (
    CronSpec,
    Failed,
    Failure,
    JobChange,
    JobRecord,
    JobSpec,
    Origin,
    Outcome,
    Run,
    ScheduleSpec,
    Succeeded,
    Verdict,
)
from duly.rules.settling import settle
from duly.scheduler import Job, Scheduler
from duly.scheduler.client import Client

Progress = Callable[[str, int, int], None]

HANDLER = "growth"
RARE = "growth_rare"  # a handler and a queue of one ended run in ten thousand
BACKLOG = "backlog"
ENDED = "ended"
_CHUNK = 1000
_RARE_EVERY = 10_000
_FAILED_EVERY = 1000
_JOBS = 1009  # ended runs are spread over this many jobs, so that each state and queue is spread over them
_MINUTES = 28 * 24 * 60  # every month has these
_STRIDE = 1_000_003  # prime: few jobs are spread over the whole month, too
_HOURS = 28 * 24
_PLANNED_AHEAD = timedelta(minutes=10)
_AGO = timedelta(seconds=1)  # ready by the store's clock, of which ours is an estimate
_NODE = "growth-filler"
_LEASE = 60.0
_FAILURE = Failed(Failure("ValueError", "the remote side closed the connection", ""), Verdict.NEVER)


class Amounts(Struct, frozen=True):
    """How much of each kind a store has, or is to have."""

    schedules: int = 0
    waiting: int = 0
    history: int = 0


def job_name(number: int) -> str:
    """The name of a schedule; names sort by number."""
    return f"growth-{number:08}"


class Filler:
    """Fills one store. `rates` has how many items per second were written, by kind, the last time."""

    def __init__(self, scheduler: Scheduler, progress: Progress) -> None:
        self._scheduler = scheduler
        self._progress = progress
        self._filled = Amounts()
        self._requests = 0
        self.rates: dict[str, int] = {}

    async def fill(self, wanted: Amounts) -> None:
        """Write what is missing to these amounts."""
        client = await self._scheduler.opened()
        filled = self._filled
        await self._timed("schedules", self._schedules(client, filled.schedules, wanted.schedules), wanted.schedules)
        await self._timed("waiting", self._waiting(filled.waiting, wanted.waiting), wanted.waiting)
        await self._timed("history", self._history(client, filled.history, wanted.history), wanted.history)
        self._filled = wanted

    async def _timed(self, what: str, filling: AsyncIterator[int], total: int) -> None:
        """Drive one kind of filling; it yields how much there is after each chunk."""
        started, first = time.perf_counter(), getattr(self._filled, what)
        async for done in filling:
            self._progress(f"filling {what}", done, total)
        if total > first:
            self.rates[what] = round((total - first) / (time.perf_counter() - started))

    async def _schedules(self, client: Client, first: int, total: int) -> AsyncIterator[int]:
        """Jobs as the API defines them: one handler, each due at one minute of the month."""
        plain = client.registry.spec_for_handler(Job(name=HANDLER, handler=HANDLER), client.live.config)
        now = client.clock.now()
        due: dict[int, tuple[ScheduleSpec, datetime]] = {}
        for start in range(first, total, _CHUNK):
            changes = []
            for number in range(start, min(start + _CHUNK, total)):
                minute = number * _STRIDE % _MINUTES
                if minute not in due:  # there are many more jobs than expressions
                    due[minute] = _schedule(minute, now)
                schedule, cursor = due[minute]
                spec = replace(plain, name=job_name(number), schedule=schedule)
                changes.append(_created(client.ids.new(), spec, cursor, now))
            await client.backend.store.save(changes)
            yield start + len(changes)

    async def _waiting(self, first: int, total: int) -> AsyncIterator[int]:
        """Submitted runs: every second thousand is ready, the others are due within the month."""
        client = await self._scheduler.opened()
        for start in range(first, total, _CHUNK):
            number, count = start // _CHUNK, min(_CHUNK, total - start)
            later = None if number % 2 == 0 else client.clock.now() + timedelta(hours=1 + number % _HOURS)
            await self._scheduler.submit_many(HANDLER, [{}] * count, queue=BACKLOG, at=later)
            yield start + count

    async def _history(self, client: Client, first: int, total: int) -> AsyncIterator[int]:
        """Ended runs of all jobs, as workers leave them behind: put, claimed, settled."""
        for start in range(first, total, _CHUNK):
            numbers = range(start, min(start + _CHUNK, total))
            due = client.clock.now() - _AGO
            ids = client.ids.many(len(numbers))
            runs = [_run(run_id, number, due) for run_id, number in zip(ids, numbers, strict=True)]
            await client.backend.queue.put(runs)
            await self._end_all(client, dict(zip(ids, numbers, strict=True)))
            yield numbers.stop

    async def _end_all(self, client: Client, numbers: dict[str, int]) -> None:
        queue = client.backend.queue
        while numbers:
            self._requests += 1
            claimed = await queue.claim(_NODE, [ENDED, RARE], None, _CHUNK, _LEASE, self._requests)
            if not claimed.claims:
                raise DulyError(f"{len(numbers)} of the runs that were put into the queue {ENDED!r} cannot be claimed")
            now = client.clock.now()
            ended = [(claim, _outcome(numbers.pop(claim.run.id))) for claim in claimed.claims]
            await queue.settle([settle(claim.run, claim.fence, outcome, now, 0.0) for claim, outcome in ended])


def _schedule(minute: int, now: datetime) -> tuple[ScheduleSpec, datetime]:
    """A schedule that is due at this minute of the month, and its first instant."""
    hours, minutes = divmod(minute, 60)
    days, hours = divmod(hours, 24)
    this_month = now.replace(day=days + 1, hour=hours, minute=minutes, second=0, microsecond=0)
    cursor = this_month if this_month > now else _a_month_later(this_month)
    return CronSpec(f"{minutes} {hours} {days + 1} * *", "UTC"), cursor


def _a_month_later(at: datetime) -> datetime:
    return at.replace(year=at.year + at.month // 12, month=at.month % 12 + 1)


def _created(uid: str, spec: JobSpec, cursor: datetime, now: datetime) -> JobChange:
    """A new job as the planner leaves it: it looks at the job again shortly before the first instant."""
    record = JobRecord(
        uid=uid,
        spec=spec,
        revision=1,
        origin=Origin.API,
        created_at=now,
        updated_at=now,
        cursor=cursor,
        plan_at=max(now, cursor - _PLANNED_AHEAD),
    )
    return JobChange(record, None)


def _run(run_id: str, number: int, due: datetime) -> Run:
    name = RARE if number % _RARE_EVERY == 0 else HANDLER
    queue = RARE if name == RARE else ENDED
    return Run(id=run_id, job=job_name(number % _JOBS), handler=name, due=due, ready_at=due, queue=queue)


def _outcome(number: int) -> Outcome:
    return _FAILURE if number % _FAILED_EVERY == 0 else Succeeded(b"null")
