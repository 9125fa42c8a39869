"""Running for ever: a node as a program, with signals and logs. Only `run_forever` and the command line come here."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from duly.observe import configure_logging
from duly.scheduler.views import ShutdownReport

if TYPE_CHECKING:
    from duly.scheduler.facade import Scheduler

_log = logging.getLogger("duly.node")
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_COLLECT_AFTER = 10_000

T = TypeVar("T")
Reload = Callable[[], Awaitable[None]]


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


async def live(scheduler: Scheduler, reload: Reload | None = None) -> ShutdownReport:
    """One life of a node: until the first signal, and what remains of it after that; SIGHUP may reload."""
    with signalled(scheduler.hurry, reload) as signs:
        await scheduler.start()
        await signs.stop()
        _log.info("stopping: waiting for running handlers; a second signal stops at once")
        return await scheduler.stop()


class Signs:
    """What the signals of this process have said."""

    def __init__(self, hurry: Callable[[], None], reload: Reload | None) -> None:
        self._hurry = hurry
        self._reload = reload
        self._stopping = asyncio.Event()
        self._hung_up = asyncio.Event()

    def calls(self) -> dict[signal.Signals, Callable[[], None]]:
        """What to call on which signal."""
        reloads = {} if self._reload is None else {signal.SIGHUP: self._hung_up.set}
        return dict.fromkeys(_STOPPING, self._told_to_stop) | reloads

    def _told_to_stop(self) -> None:
        if self._stopping.is_set():
            _log.warning("second signal: not waiting for running handlers any longer")
            self._hurry()
        self._stopping.set()

    async def stop(self) -> None:
        """Wait for the first signal to stop; SIGHUP reloads meanwhile."""
        async with asyncio.TaskGroup() as group:
            reload = self._reload
            reloading = group.create_task(_reload(self._hung_up, reload)) if reload is not None else None
            await self._stopping.wait()
            if reloading is not None:
                reloading.cancel()


@contextmanager
def signalled(hurry: Callable[[], None], reload: Reload | None = None) -> Iterator[Signs]:
    """Listen to signals for the block: the first to stop is told, a second one hurries."""
    signs = Signs(hurry, reload)
    with _signals(signs.calls()):
        yield signs


async def _reload(hung_up: asyncio.Event, reload: Reload) -> None:
    """Reload after every SIGHUP; several in a row are one."""
    while True:
        await hung_up.wait()
        hung_up.clear()
        await reload()


class _signals:  # noqa: N801  # a context manager used once, above
    """Calls functions on signals for the block, where the thread allows it."""

    def __init__(self, calls: Mapping[signal.Signals, Callable[[], None]]) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for each, call in self._calls.items():
                asyncio.get_running_loop().add_signal_handler(each, call)

    def __exit__(self, *exc: object) -> None:
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for each in self._calls:
                asyncio.get_running_loop().remove_signal_handler(each)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
