"""Daemon threads for users' code. The threads of the standard pool would keep the process from exiting."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_Work = tuple[Callable[[], Any], "asyncio.Future[Any]"]
_IDLE_SECONDS = 60.0


class DaemonThreads:
    """Keeps one thread for each concurrent call; idle ones end after a minute."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Make a call in a thread; the future gets its value, or what it raised, including SystemExit."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.put((call, future))
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                return future
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._serve, name=f"{self._name}-{number}", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._retire():
                    return
                continue
            if work is None:
                return
            call, future = work
            value, error = _outcome_of(call)
            with self._lock:
                self._idle += 1  # before the result is set: its receiver may submit the next call at once
            _answer(future, value, error)
            del work, call, future, value, error  # nothing of a call is kept alive while the thread waits

    def _retire(self) -> bool:
        """End this idle thread, unless work has just been promised to it."""
        with self._lock:
            if self._idle == 0:
                return False
            self._idle -= 1
            return True

    def close(self) -> None:
        """Let idle threads end; one that is still at work ends with the process."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._work.put(None)


def _outcome_of(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except BaseException as exc:  # noqa: BLE001  # whatever a handler raises is its outcome, SystemExit included
        return None, exc


def _answer(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    with suppress(RuntimeError):  # the loop may be closed by now: then nothing waits for this thread any more
        future.get_loop().call_soon_threadsafe(_deliver, future, value, error)


def _deliver(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration | GeneratorExit):  # no future can carry these
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)
