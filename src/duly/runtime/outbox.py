"""The outbox: tells the reporter that an attempt has something to report. Any thread may use it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from duly.ports import Clock
from duly.runtime.service import Signal


class Outbox:
    """Belongs to the node's loop. `keep` is how many lines of a run's log are kept by default.

    `noted` says whether there may be something new, `since` for how long, by the monotonic clock.
    """

    def __init__(self, keep: Callable[[], int], clock: Clock) -> None:
        self.keep = keep
        self.signal = Signal()
        self.noted = False
        self.since = -math.inf
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def now(self) -> datetime:
        """The time of a line."""
        return self._clock.now()

    def note(self) -> None:
        """There is something to report."""
        if self.noted:
            return
        self.noted = True
        self.since = self._clock.monotonic()
        if threading.get_ident() == self._thread:
            self.signal.wake()
        else:
            with suppress(RuntimeError):  # the node's loop is closed
                self._loop.call_soon_threadsafe(self.signal.wake)
