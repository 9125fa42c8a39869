"""The kinds of workers of a benchmark: ordinary schedulers with ordinary handlers."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.address import Address, open_address
from duly.cli.bench.call_timing import timed
from duly.model import Retention, SchedulerConfig
from duly.rules.schedules import Cron, Every
from duly.runtime.context import Context
from duly.scheduler import Job, Scheduler

PERIOD = 10
BUSY = "busy"  # the queue of a run that occupies a slot during the measurement
_SHORT_STOP = 1.0


class Assignment(Struct, frozen=True):
    """The task of a worker process."""

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
    """What a worker records while it works."""

    def __init__(self) -> None:
        self.done = 0
        self.ended = 0.0
        self.late: list[float] = []
        self.seen: list[tuple[str, float]] = []
        self.slowest: tuple[str, float] = ("", 0.0)


def build(assignment: Assignment, notes: Notes) -> Scheduler:
    """The scheduler of a worker."""
    config = SchedulerConfig(
        max_concurrent=assignment.concurrency,
        namespace=assignment.namespace,
        roles=assignment.roles,
        queues=assignment.queues,
        shutdown_timeout=_SHORT_STOP if assignment.kind == "ping" else 30.0,
        retention=Retention(max_completed=None) if assignment.kind == "growth" else Retention(),
    )
    scheduler = _scheduler(assignment, config, notes)
    _KINDS[assignment.kind](scheduler, notes, assignment.schedules)
    return scheduler


def _scheduler(assignment: Assignment, config: SchedulerConfig, notes: Notes) -> Scheduler:
    url, queue, coordinator = assignment.url, assignment.queue, assignment.coordinator
    if assignment.kind != "growth":
        return Scheduler(url, config, queue=queue, coordinator=coordinator)
    address = Address(url, queue, coordinator)
    return Scheduler(config=config, backend=lambda opening: timed(open_address(address, opening), notes))


def assignments(layout: str, assignment: Assignment, processes: int) -> list[Assignment]:
    """The assignment of each node of a layout. In most layouts some nodes cannot start the measured runs."""
    worker = replace(assignment, roles=("worker",))
    match layout:
        case "scheduler":  # one node that only plans, two idle workers
            return [replace(assignment, roles=("scheduler",)), worker, worker]
        case "queues":  # two idle workers that serve different queues
            return [replace(worker, queues=("default",)), replace(worker, queues=("elsewhere",))]
        case "full":  # a worker without a free slot, and an idle one
            return [replace(worker, queues=("default", BUSY), concurrency=1), replace(worker, queues=("default",))]
        case "handlers":  # two idle workers, one of which does not have the handler
            return [worker, replace(worker, kind="other")]
        case _:  # idle nodes that plan and work
            return [assignment] * processes


def client(assignment: Assignment) -> Scheduler:
    """The scheduler of the client that submits. It knows the signatures of the handlers, as a user's program does."""
    return build(assignment, Notes())


def _noop(scheduler: Scheduler, notes: Notes, _: int) -> None:
    @scheduler.job()
    async def noop() -> None:
        notes.done += 1
        notes.ended = time.time()


def _ping(scheduler: Scheduler, notes: Notes, _: int) -> None:
    @scheduler.job()
    async def ping(number: int, sent: int) -> None:
        notes.late.append((time.time_ns() - sent) / 1e9)
        notes.seen.append((str(number), 0.0))
        notes.done += 1

    @scheduler.job(queue=BUSY)
    async def occupy(seconds: float) -> None:
        notes.done += 1
        await asyncio.sleep(seconds)


def _other(scheduler: Scheduler, _: Notes, __: int) -> None:
    @scheduler.job()
    async def another() -> None: ...


def _alarm(scheduler: Scheduler, notes: Notes, _: int) -> None:
    @scheduler.job()
    async def alarm(ctx: Context, number: int) -> None:
        notes.late.append((datetime.now(UTC) - ctx.due).total_seconds())
        notes.seen.append((str(number), 0.0))
        notes.done += 1


def _linger(scheduler: Scheduler, notes: Notes, _: int) -> None:
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


def _growth(scheduler: Scheduler, notes: Notes, _: int) -> None:
    @scheduler.job()
    async def growth() -> None:
        notes.done += 1


_KINDS = {
    "noop": _noop,
    "ping": _ping,
    "other": _other,
    "alarm": _alarm,
    "linger": _linger,
    "beat": _beat,
    "idle": _idle,
    "growth": _growth,
}
