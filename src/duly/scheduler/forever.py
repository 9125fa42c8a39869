"""Running for ever: a node as a program, with signals and logs. Only `run_forever` and the command line come here."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from duly.observe import configure_logging
from duly.scheduler.views import ShutdownReport

if TYPE_CHECKING:
    from duly.scheduler.facade import Scheduler

_log = logging.getLogger("duly.node")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_COLLECT_AFTER = 10_000

T = TypeVar("T")


def run_forever(scheduler: Scheduler, log_level: str, log_format: str) -> ShutdownReport:
    """Start, wait for a signal, stop gracefully."""
    configure_logging(log_level, log_format)
    return run_alone(live(scheduler))


def run_alone(main: Coroutine[Any, Any, T]) -> T:
    """Run a program that has the process to itself: on the fastest loop, with a collector set for many short tasks.

    By default every 700 new objects are looked through, and a hundred runs under way are more than that. They live long
    enough to be taken for permanent, so that again and again everything is looked through: a fifth of a worker's time.
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            return runner.run(main)
    finally:
        gc.set_threshold(*before)


async def live(scheduler: Scheduler) -> ShutdownReport:
    """One life of a node: until the first signal, and what remains of it after that."""
    stopping = asyncio.Event()

    def signalled() -> None:
        if stopping.is_set():
            _log.warning("second signal: not waiting for running handlers any longer")
            scheduler.hurry()
        stopping.set()

    with signals(signalled):
        await scheduler.start()
        await stopping.wait()
        _log.info("stopping: waiting for running handlers; a second signal stops at once")
        return await scheduler.stop()


class signals:  # noqa: N801  # a context manager, used as a verb
    """Calls a function on SIGINT and SIGTERM for the block, where the thread allows it."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __enter__(self) -> None:
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for each in _SIGNALS:
                asyncio.get_running_loop().add_signal_handler(each, self._call)

    def __exit__(self, *exc: object) -> None:
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for each in _SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(each)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
