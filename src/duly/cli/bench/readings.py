"""The readings that users make: each public question to a store that has no reason to cost more when more is stored.

Listings that return everything (`Scheduler.jobs()`) are not among them: their answer itself grows.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from msgspec import Struct

from duly.cli.bench.costs import Figures
from duly.cli.bench.filling import BACKLOG, RARE, Amounts, job_name
from duly.cli.bench.report import rank
from duly.model import State
from duly.scheduler import Scheduler

_PAGE = 100
_FEW = 5
_NTH_PAGE = 10
_SAMPLES = 50
_LEAST = 3
_SECONDS = 1.0
_PATIENCE = 10.0  # a reading that takes longer is made once

FAST = 50.0  # milliseconds, for what a screen shows first
ANY = 200.0

Question = Callable[[], Awaitable[object]]


class Reading(Struct, frozen=True):
    """One question, and the milliseconds that 99 of 100 answers may take."""

    name: str
    bar: float
    ask: Question


class Targets(Struct, frozen=True):
    """What the questions are about."""

    job: str
    middle: str
    run: str
    failed: str
    since: datetime
    tenth_page: str | None


async def targets(scheduler: Scheduler, amounts: Amounts, since: datetime) -> Targets:
    """A job, runs and a cursor in the middle of what is stored."""
    newest = await scheduler.runs(limit=1)
    failed = await scheduler.runs(state=State.FAILED, limit=1)
    cursor: str | None = None
    for _ in range(_NTH_PAGE - 1):
        page = await scheduler.runs(limit=_PAGE, cursor=cursor)
        if page.next is None:
            break
        cursor = page.next
    ids = [run.id for page in (newest, failed) for run in page.runs]
    return Targets(
        job=job_name(min(7, max(0, amounts.schedules - 1))),
        middle=job_name(amounts.schedules // 2),
        run=ids[0] if ids else "",
        failed=ids[-1] if ids else "",
        since=since,
        tenth_page=cursor,
    )


def readings(scheduler: Scheduler, about: Targets, amounts: Amounts) -> list[Reading]:
    """The questions that make sense for what is stored."""
    found = []
    if amounts.schedules:
        found += _of_jobs(scheduler, about)
    if amounts.waiting or amounts.history:
        found += _of_runs(scheduler, about)
    return found + _of_the_whole(scheduler)


def _of_jobs(scheduler: Scheduler, about: Targets) -> list[Reading]:
    job = about.job

    async def page(after: str) -> object:
        return await (await scheduler.opened()).definitions.page(after, _PAGE)

    async def statistics() -> object:
        client = await scheduler.opened()
        return await client.backend.store.statistics([job_name(number) for number in range(_PAGE)])

    async def show() -> object:
        now = (await scheduler.opened()).clock.now()
        view = await scheduler.get_job(job)
        return view, await scheduler.runs(job, limit=_FEW, due_until=now), await scheduler.upcoming(_FEW, job)

    return [
        Reading("upcoming(20)", FAST, lambda: scheduler.upcoming(20)),
        Reading("page of jobs", FAST, lambda: page("")),
        Reading("page of jobs, middle", FAST, lambda: page(about.middle)),
        Reading("next of a job", ANY, lambda: scheduler.upcoming(_FEW, job)),
        Reading("show a job", ANY, show),
        Reading("explain an instant", ANY, lambda: scheduler.explain(job)),
        Reading("versions of a job", ANY, lambda: scheduler.history(job)),
        Reading("statistics", ANY, statistics),
    ]


def _of_runs(scheduler: Scheduler, about: Targets) -> list[Reading]:
    def runs(*arguments: object, **filters: object) -> Question:
        return lambda: scheduler.runs(*arguments, limit=_PAGE, **filters)  # type: ignore[arg-type]  # a table of filters

    async def show() -> object:
        run = await scheduler.get_run(about.run)
        return run, await scheduler.attempts(about.run), await scheduler.waits_for(about.run)

    return [
        Reading("page of runs", FAST, runs()),
        Reading("page of runs, 10th", FAST, runs(cursor=about.tenth_page)),
        Reading("runs of a job", ANY, runs(about.job)),
        Reading("failed runs", ANY, runs(state=State.FAILED)),
        Reading("failed of a job", ANY, runs(about.job, State.FAILED)),
        Reading("queued runs", ANY, runs(state=State.QUEUED)),
        Reading("running runs", ANY, runs(state=State.RUNNING)),
        Reading("runs of a queue", ANY, runs(queue=BACKLOG)),
        Reading("runs of a rare queue", ANY, runs(queue=RARE)),
        Reading("runs, rare handler", ANY, runs(handler=RARE)),
        Reading("runs, no match", ANY, runs(handler="growth_none")),
        Reading("runs due before", ANY, runs(due_until=about.since)),
        Reading("show a run", ANY, show),
        Reading("explain a run", ANY, lambda: scheduler.explain(about.failed)),
    ]


def _of_the_whole(scheduler: Scheduler) -> list[Reading]:
    async def queues() -> object:
        return await scheduler.counts(), await scheduler.nodes()

    async def metrics() -> object:
        client = await scheduler.opened()
        return await scheduler.counts(), await scheduler.health(), await client.backend.store.time()

    return [
        Reading("counts", FAST, scheduler.counts),
        Reading("queues", FAST, queues),
        Reading("metrics", FAST, metrics),
    ]


async def measure(reading: Reading, size: int) -> Figures:
    """Ask until there are enough answers or a second is over, at least three times."""
    taken: list[float] = []
    started = time.perf_counter()
    while len(taken) < _SAMPLES and (len(taken) < _LEAST or time.perf_counter() - started < _SECONDS):
        before = time.perf_counter()
        await reading.ask()
        taken.append((time.perf_counter() - before) * 1e3)
        if time.perf_counter() - started > _PATIENCE:
            break
    return figures(size, taken)


def figures(size: int, taken: Sequence[float]) -> Figures:
    """p50 and p99 of a cost at one size."""
    ordered = sorted(taken)
    return Figures(size, round(rank(ordered, 0.50), 3), round(rank(ordered, 0.99), 3))
