"""Stints: what a worker of a benchmark does, as an ordinary scheduler with ordinary handlers."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from msgspec import Struct

from duly.model import SchedulerConfig
from duly.rules.schedules import Cron, Every
from duly.runtime.context import Context
from duly.scheduler import Job, Scheduler

PERIOD = 10
BUSY = "busy"  # the queue of what takes a slot for as long as it is measured
_LAST_SECONDS = 1.0


class Assignment(Struct, frozen=True):
    """What a worker is told."""

    kind: str
    url: str
    namespace: str
    concurrency: int = 100
    schedules: int = 0
    queue: str | None = None
    coordinator: str | None = None
    roles: tuple[str, ...] = ("scheduler", "worker")
    queues: tuple[str, ...] | None = None


class Notes:
    """What a worker writes down while it works."""

    def __init__(self) -> None:
        self.done = 0
        self.ended = 0.0
        self.late: list[float] = []
        self.seen: list[tuple[str, float]] = []


def build(assignment: Assignment, notes: Notes) -> Scheduler:
    """The scheduler of a worker."""
    config = SchedulerConfig(
        max_concurrent=assignment.concurrency,
        namespace=assignment.namespace,
        roles=assignment.roles,
        queues=assignment.queues,
        shutdown_timeout=_LAST_SECONDS if assignment.kind == "ping" else 30.0,
    )
    scheduler = Scheduler(assignment.url, config, queue=assignment.queue, coordinator=assignment.coordinator)
    match assignment.kind:
        case "noop":
            _noop(scheduler, notes)
        case "ping":
            _ping(scheduler, notes)
        case "deaf":
            _deaf(scheduler)
        case "alarm":
            _alarm(scheduler, notes)
        case "linger":
            _linger(scheduler, notes)
        case "beat":
            _beat(scheduler, notes, assignment.schedules)
        case _:
            _idle(scheduler, notes, assignment.schedules)
    return scheduler


def client(assignment: Assignment) -> Scheduler:
    """The scheduler of whoever submits; it knows the handlers' signatures as any program of the user would."""
    return build(assignment, Notes())


def _noop(scheduler: Scheduler, notes: Notes) -> None:
    @scheduler.job()
    async def noop() -> None:
        notes.done += 1
        notes.ended = time.time()


def _ping(scheduler: Scheduler, notes: Notes) -> None:
    @scheduler.job()
    async def ping(number: int, sent: int) -> None:
        notes.late.append((time.time_ns() - sent) / 1e9)
        notes.seen.append((str(number), 0.0))
        notes.done += 1

    @scheduler.job(queue=BUSY)
    async def occupy(seconds: float) -> None:
        notes.done += 1
        await asyncio.sleep(seconds)


def _deaf(scheduler: Scheduler) -> None:
    @scheduler.job()
    async def another() -> None: ...


def _alarm(scheduler: Scheduler, notes: Notes) -> None:
    @scheduler.job()
    async def alarm(ctx: Context, number: int) -> None:
        notes.late.append((datetime.now(UTC) - ctx.due).total_seconds())
        notes.seen.append((str(number), 0.0))
        notes.done += 1


def _linger(scheduler: Scheduler, notes: Notes) -> None:
    @scheduler.job()
    async def linger(seconds: float) -> None:
        notes.seen.append(("begun", time.time()))
        notes.done += 1
        await asyncio.sleep(seconds)


def _beat(scheduler: Scheduler, notes: Notes, schedules: int) -> None:
    async def beat(ctx: Context) -> None:
        now = datetime.now(UTC)
        notes.late.append((now - ctx.due).total_seconds())
        notes.seen.append((ctx.job, ctx.due.timestamp()))
        notes.done += 1

    for number in range(schedules):
        scheduler.add(Job(name=f"beat-{number}", handler=beat, schedule=Every(seconds=PERIOD)))


def _idle(scheduler: Scheduler, notes: Notes, schedules: int) -> None:
    async def rest() -> None:
        notes.done += 1

    for number in range(schedules):
        scheduler.add(Job(name=f"rest-{number}", handler=rest, schedule=Cron("H H * * *")))
