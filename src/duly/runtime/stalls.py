"""Stalls: a thread detects that the node's event loop is blocked, and reports what blocks it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable

from duly.model.event import Emit, LoopStalled

LONGEST_SILENCE = 5.0
_LOOKS = 10  # checks within the limit: at most one period of a stall goes unnoticed
_LATE = 4  # if it is this many periods late, this thread itself was kept from running,
_PAUSED = 1.0  # and this many seconds: a busy machine is often late by less
_LAST_MOMENT = 0.1


class LoopWatch:
    """Checks periodically that the loop it was made on responds. Ends with the loop, closed or not.

    A silence of more than `limit` seconds is reported once. The event is emitted in this thread: the loop that would
    emit it is blocked.
    """

    def __init__(self, emit: Emit, monotonic: Callable[[], float], limit: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._emit = emit
        self._monotonic = monotonic
        self._limit = limit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="duly-loop-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_LAST_MOMENT)

    # --- in the thread

    def _watch(self) -> None:
        period = self._limit / _LOOKS
        while not self._over.wait(period):
            asked, answered = self._monotonic(), threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # it is closed
            self._await(answered, asked, period)

    def _await(self, answered: threading.Event, asked: float, period: float) -> None:
        reported, looked, worked = False, asked, time.process_time()
        while not answered.wait(period) and not self._over.is_set() and not self._loop.is_closed():
            now, spent = self._monotonic(), time.process_time()
            if now - looked > max(_LATE * period, _PAUSED) and spent - worked < (now - looked) / 2:
                return  # the whole process was paused: the loop could not answer, and did not stall
            looked, worked = now, spent
            if now - asked > self._limit and not reported:
                reported = True
                self._emit(LoopStalled(now - asked, _stack_of(self._watched)))


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # the only way to see another thread's stack
    return "" if frame is None else "".join(traceback.format_stack(frame))
