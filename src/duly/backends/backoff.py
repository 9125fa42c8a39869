"""Backoff: after each failure, wait before the next attempt to reach a server; longer each time, with jitter.

So clients do not all reconnect at once when a server comes back, and a call during an outage fails at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from duly.errors import BackendUnavailable

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Backoff:
    """Belongs to one event loop."""

    def __init__(self, dice: Callable[[], float] = random.random) -> None:
        self._dice = dice
        self._failures = 0
        self._opens_at = 0.0
        self._why = ""

    @property
    def closed_for(self) -> float:
        """Seconds until the next attempt is allowed."""
        return max(0.0, self._opens_at - asyncio.get_running_loop().time())

    def check(self) -> None:
        if self.closed_for:
            raise BackendUnavailable(self._why)

    def failed(self, why: BackendUnavailable) -> None:
        pause = min(_FIRST_PAUSE * 2.0 ** min(self._failures, 16), _LONGEST_PAUSE)
        self._failures += 1
        self._opens_at = asyncio.get_running_loop().time() + pause * (0.5 + self._dice() / 2)
        self._why = str(why)

    def passed(self) -> None:
        self._failures = 0
        self._opens_at = 0.0
