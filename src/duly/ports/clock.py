"""The clock port. Waiting is always asyncio's, so that a simulated event loop owns time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

# Linux stops CLOCK_MONOTONIC while the machine is suspended; a lease goes on all the same.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two clocks: one that people read and one that never jumps."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC. May be stepped by whoever sets the machine's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never steps back, and goes on while the machine is suspended."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_STEADY)
