"""Signals: how a process reacts to them and stops in time.

A thread waits for signals, so that they are noticed even while a handler blocks the event loop. The first one to stop
starts the clock: when `shutdown_timeout` and two seconds have passed the process exits, whatever its handlers do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, Self

_log = logging.getLogger("duly.node")

STOPPING = (signal.SIGINT, signal.SIGTERM)
LAST_WORDS = 1.85  # what the process has after the time for handlers is up; to be gone within two seconds

_RESCUE = 0.8  # before the process exits: when a loop that is blocked is given up
_FLUSHING = 0.1
_MOST_BYTES = 1024

Reload = Callable[[], Awaitable[None]]


class Deadline:
    """Ends the process when its time is up. Belongs to the thread that waits for signals.

    `done`: the stop has ended, and only threads or handlers that never end are left.
    """

    def __init__(self, patience: Callable[[], float | None]) -> None:
        self._patience = patience
        self._at: float | None = None
        self.done = False

    @property
    def left(self) -> float | None:
        """Seconds until the process exits; None if there was no signal, or handlers have no time limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def asked(self, times: int) -> None:
        """A signal asked the process to stop; the second one, not to wait for handlers."""
        if times > 1:
            self._by(LAST_WORDS)
        elif (patience := self._patience()) is not None:
            self._by(patience + LAST_WORDS)

    def _by(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._at = at if self._at is None else min(at, self._at)

    def exit(self, rescued: int) -> NoReturn:
        """End the process immediately. Nothing can block this: no lock is taken, no thread is joined."""
        if not self.done:
            text = f"duly: the stop was not done in time; {rescued} runs were given back, and the process exits\n"
            with suppress(OSError):
                os.write(2, text.encode())
        flushing = threading.Thread(target=_flush, daemon=True)
        flushing.start()
        flushing.join(_FLUSHING)
        os._exit(0 if self.done else 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


class Signals:
    """Receives the signals of this process during the block, in a thread, and calls functions on a loop for them.

    Does nothing outside the main thread: Python handles signals only there. `rescue` is called in the
    thread, with the seconds that it may take, if the process must exit and its loop is blocked. `kept` keeps the
    deadline after the block, for programs that only have to exit.
    """

    def __init__(
        self, patience: Callable[[], float | None], rescue: Callable[[float], int], *, kept: bool = False
    ) -> None:
        self.deadline = Deadline(patience)
        self._rescue = rescue
        self._rescued: int | None = None
        self._kept = kept
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._stops = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: Mapping[int, Callable[[], object]] = {}
        self._before: dict[int, Any] = {}
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)

    def __enter__(self) -> Self:
        self._handle(STOPPING)
        threading.Thread(target=self._listen, name="duly-signals", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        if not (self._kept and self._stops):
            os.close(self._mouth)  # the thread ends

    def stopped(self) -> None:
        """The stop has ended: only threads or handlers that never end are left."""
        self.deadline.done = True

    def _handle(self, numbers: Iterable[int]) -> None:
        with suppress(ValueError):  # not the main thread
            for number in numbers:
                if number not in self._before:
                    self._before[number] = signal.signal(number, self._noted)

    def _noted(self, number: int, _: FrameType | None) -> None:
        """Called between two instructions of the main thread, wherever that is: nothing here may wait."""
        if os.getpid() != self._process:  # a process that a handler forked: the signal is for that one
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        with suppress(OSError):
            os.write(self._mouth, bytes((number,)))

    def call(self, calls: Mapping[int, Callable[[], object]]) -> None:
        """From now on call these on the running loop; also for stop signals that came before."""
        self._handle(calls)
        with self._lock:
            self._loop, self._calls = asyncio.get_running_loop(), calls
            for _ in range(self._stops):
                self._pass_on(signal.SIGTERM)

    # --- in the thread

    def _listen(self) -> None:
        while True:
            if not select.select([self._ear], [], [], self._until())[0]:
                self._expired()
                continue
            said = os.read(self._ear, _MOST_BYTES)
            if not said:
                os.close(self._ear)
                return
            for number in said:
                self._heard(number)

    def _until(self) -> float | None:
        """Seconds until the next action other than receiving signals."""
        left = self.deadline.left
        if left is None or self._rescued is not None:
            return left
        return max(0.0, left - _RESCUE)

    def _expired(self) -> None:
        if self._rescued is not None:
            self.deadline.exit(self._rescued)
        self._rescued = self._rescue(_RESCUE / 2) if self._is_blocked() else 0

    def _is_blocked(self) -> bool:
        """Whether the loop is blocked, so that it cannot stop the node."""
        if self._loop is None or self.deadline.done:
            return False
        answered = threading.Event()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return False  # it has ended
        return not answered.wait(_RESCUE / 4)

    def _heard(self, number: int) -> None:
        with self._lock:
            if number in STOPPING:
                self._stops += 1
                self.deadline.asked(self._stops)
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        call = self._calls.get(number)
        if self._loop is not None and call is not None:
            with suppress(RuntimeError):  # the loop is closed: only the exit remains
                self._loop.call_soon_threadsafe(call)


class Signs:
    """The requests that signals of this process have made to the loop."""

    def __init__(self, signals: Signals, hurry: Callable[[], None], reload: Reload | None = None) -> None:
        self._hurry = hurry
        self._reload = reload
        self._hung_up = asyncio.Event()
        self._stopping = asyncio.Event()
        calls: dict[int, Callable[[], object]] = dict.fromkeys(STOPPING, self._told_to_stop)
        if reload is not None:
            calls[signal.SIGHUP] = self._hung_up.set
        signals.call(calls)

    def _told_to_stop(self) -> None:
        if self._stopping.is_set():
            _log.warning("second signal: not waiting for running handlers any longer")
            self._hurry()
        self._stopping.set()

    async def until_stop(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a coroutine that the first stop signal cancels; return whether it finished."""
        loop = asyncio.get_running_loop()
        working, stopping = loop.create_task(work), loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
        if working.cancelled():
            return False
        working.result()
        return True

    async def stop(self, node: Coroutine[Any, Any, None] | None = None) -> None:
        """Wait for the first signal to stop, or for the end of the node; SIGHUP reloads meanwhile.

        Raises what the node raises.
        """
        await self.until_stop(self._until_end(node))

    async def _until_end(self, node: Coroutine[Any, Any, None] | None) -> None:
        """Reload until the node ends."""
        if node is None:
            await self._reload_again()
            return
        loop = asyncio.get_running_loop()
        ending, reloading = loop.create_task(node), loop.create_task(self._reload_again())
        try:
            await asyncio.wait([ending, reloading], return_when=asyncio.FIRST_COMPLETED)
            (ending if ending.done() else reloading).result()
        finally:
            ending.cancel()
            reloading.cancel()
            await asyncio.wait([ending, reloading])

    async def _reload_again(self) -> None:
        """Reload after every SIGHUP; several in a row are one."""
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            if self._reload is not None:
                await self._reload()
