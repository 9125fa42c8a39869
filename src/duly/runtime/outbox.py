"""The outbox: the attempts that have something to report, and how the reporter learns of it. For any thread."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from duly.ports import Clock
from duly.runtime.service import Signal

if TYPE_CHECKING:
    from duly.runtime.active_runs import ActiveRun


class Outbox:
    """Belongs to the node's loop. `keep` is how many lines of a run's log are kept by default.

    `reporting` are the attempts that have reported anything so far, by fence. `noted` says whether there may be
    something new, and `since` when that was noted, by the monotonic clock.
    """

    def __init__(self, keep: Callable[[], int], clock: Clock) -> None:
        self.keep = keep
        self.signal = Signal()
        self.reporting: dict[int, ActiveRun] = {}
        self.noted = False
        self.since = -math.inf
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def now(self) -> datetime:
        """The time of a line."""
        return self._clock.now()

    def note(self, active: ActiveRun) -> None:
        """This attempt has something to report."""
        self.reporting[active.claim.fence] = active
        if self.noted:
            return
        self.noted = True
        self.since = self._clock.monotonic()
        if threading.get_ident() == self._thread:
            self.signal.wake()
        else:
            with suppress(RuntimeError):  # the node's loop is closed
                self._loop.call_soon_threadsafe(self.signal.wake)
