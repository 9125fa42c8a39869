"""The scheduler without an event loop: every method that waits, as one that blocks.

The signatures are the scheduler's own: nothing is written twice, and both type checkers see the same parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from duly.scheduler.handles import RunHandle
from duly.scheduler.scheduler import Scheduler
from duly.scheduler.sync import SyncRunHandle, run_sync

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Scheduler, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncScheduler, P], T]:
    """The same method, which returns when the coroutine has ended."""
    name = method.__name__

    @wraps(method)
    def blocking(self: SyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Coroutine[Any, Any, T]] = getattr(self.scheduler, name)
        return self.call(lambda: bound(*args, **kwargs), name)

    return blocking


def _submitting(
    method: Callable[Concatenate[Scheduler, P], Coroutine[Any, Any, RunHandle[Any]]],
) -> Callable[Concatenate[SyncScheduler, P], SyncRunHandle[Any]]:
    """The same for a method that gives a handle: its blocking twin."""
    waiting = _blocking(method)

    @wraps(method)
    def submitting(self: SyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> SyncRunHandle[Any]:
        return waiting(self, *args, **kwargs).sync

    return submitting


def _submitting_many(
    method: Callable[Concatenate[Scheduler, P], Coroutine[Any, Any, list[RunHandle[Any]]]],
) -> Callable[Concatenate[SyncScheduler, P], list[SyncRunHandle[Any]]]:
    waiting = _blocking(method)

    @wraps(method)
    def submitting(self: SyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> list[SyncRunHandle[Any]]:
        return [handle.sync for handle in waiting(self, *args, **kwargs)]

    return submitting


class SyncScheduler:
    """Every method of the scheduler that waits, as one that blocks."""

    def __init__(self, scheduler: Scheduler, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.scheduler = scheduler
        self._loop = loop

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        """Run one of the scheduler's coroutines and wait for it."""
        return run_sync(make, name, self._loop)

    def run(self, run_id: str) -> SyncRunHandle[Any]:
        """As `Scheduler.run`."""
        return self.scheduler.run(run_id).sync

    start = _blocking(Scheduler.start)
    stop = _blocking(Scheduler.stop)
    close = _blocking(Scheduler.close)
    register = _blocking(Scheduler.register)
    remove = _blocking(Scheduler.remove)
    restore = _blocking(Scheduler.restore)
    pause = _blocking(Scheduler.pause)
    resume = _blocking(Scheduler.resume)
    history = _blocking(Scheduler.history)
    rollback = _blocking(Scheduler.rollback)
    backfill = _blocking(Scheduler.backfill)
    compare = _blocking(Scheduler.compare)
    apply = _blocking(Scheduler.apply)
    trigger = _submitting(Scheduler.trigger)
    submit = _submitting(Scheduler.submit)
    submit_many = _submitting_many(Scheduler.submit_many)
    get_job = _blocking(Scheduler.get_job)
    jobs = _blocking(Scheduler.jobs)
    handler_statistics = _blocking(Scheduler.handler_statistics)
    get_run = _blocking(Scheduler.get_run)
    runs = _blocking(Scheduler.runs)
    attempts = _blocking(Scheduler.attempts)
    logs = _blocking(Scheduler.logs)
    cancel = _blocking(Scheduler.cancel)
    redrive = _submitting(Scheduler.redrive)
    upcoming = _blocking(Scheduler.upcoming)
    waits_for = _blocking(Scheduler.waits_for)
    explain = _blocking(Scheduler.explain)
    nodes = _blocking(Scheduler.nodes)
    health = _blocking(Scheduler.health)
