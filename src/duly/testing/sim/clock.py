"""SimClock: the clock port in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from duly.model import shift

EPOCH = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


class SimClock:
    """What one machine's clock shows: virtual time since `epoch`, off by `skew` seconds, which may be set at any time.

    A changed skew is a stepped wall clock; `monotonic` does not notice.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: datetime = EPOCH, skew: float = 0.0) -> None:
        self._loop = loop
        self._epoch = epoch
        self.skew = skew

    def now(self) -> datetime:
        return shift(self._epoch, self._loop.time() + self.skew)

    def monotonic(self) -> float:
        return self._loop.time()
