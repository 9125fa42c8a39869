"""Running for ever: a node as a program, with signals and logs. Only `run_forever` and the command line use it."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from duly.observe import configure_logging
from duly.scheduler.child_processes import STARTED, Line
from duly.scheduler.following import follow, started_after_move, store_moved
from duly.scheduler.program_listing import log_jobs
from duly.scheduler.signals import Reload, Signals, Signs
from duly.scheduler.views import ShutdownReport

if TYPE_CHECKING:
    from duly.scheduler.scheduler import Scheduler

_log = logging.getLogger("duly.node")
_COLLECT_AFTER = 10_000

T = TypeVar("T")


def run_forever(scheduler: Scheduler, log_level: str, log_format: str) -> ShutdownReport:
    """Start, wait for a signal, stop gracefully."""
    configure_logging(log_level, log_format)
    with Signals(lambda: scheduler.patience, scheduler.rescue) as signals:
        return run_alone(live(scheduler, signals))


def run_alone(main: Coroutine[Any, Any, T]) -> T:
    """Run a program that has the process to itself: on the fastest loop, with a collector set for many short tasks.

    By default the garbage collector runs after every 700 new objects, and a hundred runs under way have more than that.
    They live long enough to reach the oldest generation, so that full collections are frequent: a fifth of a worker's
    time. Modules and job definitions, which exist before the program runs and stay as long as it does, are exempt from
    that. A scheduler inside another program leaves that program's collector alone.
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    gc.collect()  # or garbage would be kept, too
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            return runner.run(main)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


async def live(
    scheduler: Scheduler, signals: Signals, reload: Reload | None = None, started: Callable[[], None] = lambda: None
) -> ShutdownReport:
    """Run a node until the first signal, then stop it; SIGHUP may reload. `started` is called when it has started.

    If its store has moved, it goes on with the new one, or raises `StoreMoved` (`scheduler.following`).
    """
    signs = Signs(signals, scheduler.hurry, reload)
    start = partial(start_and_list, scheduler, started)
    while True:
        moved = await store_moved(_run(scheduler, signs, start))
        report = await scheduler.stop()
        if moved is None:
            signals.stopped()
            return report
        follow(scheduler, moved)
        start = partial(started_after_move, scheduler)


async def _run(scheduler: Scheduler, signs: Signs, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start a node and wait until it has to stop; raises `StoreMoved`."""
    if await signs.until_stop(start()):
        await signs.stop(scheduler.wait())
        _log.info("stopping: waiting for running handlers; a second signal stops at once")


def attach(scheduler: Scheduler, line: Line) -> Callable[[], None]:
    """Connect a node with its supervisor; returns the function to call when it has started."""
    tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps no tasks alive

    def tell_hooks(run_ids: list[str]) -> None:
        task = asyncio.get_running_loop().create_task(scheduler.tell_hooks(run_ids))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    line.replaced = scheduler.replaced
    line.lost_runs = tell_hooks
    line.open()
    return lambda: line.say(STARTED, scheduler.report())


async def start_and_list(scheduler: Scheduler, started: Callable[[], None]) -> None:
    """Start the node and write to the log what it runs.

    `started` is called first: a supervisor takes a process that ends before for one that cannot start, and a run may
    end the process at any time.
    """
    await scheduler.start()
    started()
    with suppress(asyncio.CancelledError):  # the node runs: a signal that comes now must stop it
        await log_jobs(await scheduler.opened(), scheduler.defined())


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
