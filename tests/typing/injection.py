"""Pinned: parts that users construct fit as they are."""

import logging
from collections.abc import Awaitable
from typing import Any, assert_type

from duly import Executor, HandlerCall, MetricsCollector, Run, Scheduler, SchedulerConfig, ShutdownReport
from duly.ports import Backend, Opening


class Pool:
    async def execute(self, call: HandlerCall) -> Any:
        return call()


class Remote:
    def execute(self, call: HandlerCall) -> Awaitable[int]:
        raise NotImplementedError


class Counting(MetricsCollector):
    """Counts nothing."""


def opener(opening: Opening) -> Backend:
    raise NotImplementedError(opening.namespace)


def given(backend: Backend) -> Scheduler:
    return Scheduler(backend=backend)


pool: Executor = Pool()
scheduler = Scheduler(
    backend=opener,
    executors={"pool": pool, "remote": Remote()},
    logger=logging.LoggerAdapter(logging.getLogger("shop"), {}),
    metrics=Counting(),
    config={"max_concurrent": 3},
)
Scheduler("memory://", SchedulerConfig(), logger=logging.getLogger("shop"))


@scheduler.job(executor="pool")
def work(number: int) -> int:
    return number


Scheduler(executors={"pool": object()})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
Scheduler(backend=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Scheduler(logger=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def blocking() -> None:
    assert_type(scheduler.sync.submit("work", {"number": 1}, delay=5).id, str)
    assert_type(scheduler.sync.runs("work", limit=5).runs, list[Run])
    assert_type(scheduler.sync.stop(timeout=1), ShutdownReport)
    scheduler.sync.pause("work", notes="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
