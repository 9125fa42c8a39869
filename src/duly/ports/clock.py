"""Clocks: the machine's own, and the store's as this process has measured it.

The store's clock decides about due times, leases and everything else that several nodes must agree on. A node's own
clock may be wrong by minutes. `StoreClock` knows the store's time without asking each time: it measures the offset of
the store's clock from the machine's monotonic clock, which never jumps, and it does not run ahead of the store.

Waiting always goes through asyncio, so that a simulated event loop controls time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from duly.model import from_micros, to_micros

# Linux stops CLOCK_MONOTONIC while the machine is suspended, but leases continue to run out.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TOLERANCE = 1.0  # seconds by which the store's clock may differ from the expected time before it is doubted
BELIEVE_AFTER = 30.0  # seconds that a clock must stay at its new time after a jump before it is trusted
_SAMPLES = 12
_TOLERATED = round(TOLERANCE * 1e6)


class Clock(Protocol):
    """Two clocks: one that people read and one that never jumps."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC. May jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back, and continues while the machine is suspended."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(partial(time.clock_gettime, _STEADY))  # read several times per run: avoids a Python call

    @staticmethod
    def boot() -> str | None:
        """The id of the boot that `monotonic` counts from, the same for all processes; None if it is unknown."""
        try:
            return _BOOT_ID.read_text()
        except OSError:
            return None


class StoreClock:
    """The time of one store. Shared by all sessions of a process on it, and safe to read from any thread.

    For a store in this process or in a file, it is the machine's own clock, read each time (`direct`). For a server it
    is measured: each reading says what the time was before its answer arrived, so the latest of several is the most
    accurate, and not ahead of the store's clock.

    A reading that differs from what is expected is doubted: a step of the store's clock by ten minutes must not start
    the runs of the next ten minutes. It is trusted once it stays. If it was this machine that stood still, its claims
    are spared meanwhile: other nodes see the missing heartbeats as a silence.
    """

    def __init__(self, local: Clock, *, direct: bool = False) -> None:
        self._local = local
        self.monotonic: Callable[[], float] = local.monotonic
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # lower and upper bound of the offset
        self._offset: int | None = None
        self._width = 0  # the distance from the offset to its upper bound
        self._doubted_since = 0.0
        self._doubt = 0
        self.direct = direct
        self.followed = 0  # how many jumps were accepted

    @property
    def known(self) -> bool:
        """Whether the store's clock has been read."""
        return self.direct or self._offset is not None

    @property
    def doubt(self) -> float:
        """By how many seconds the store's clock differs from the time in use; 0 if it is trusted."""
        return self._doubt / 1e6

    def now(self) -> datetime:
        return from_micros(self.micros())

    def micros(self) -> int:
        """The store's time in microseconds since 1970. Before the first reading it is the machine's."""
        if self.direct:
            return self._read_directly()
        offset = self._offset
        return to_micros(self._local.now()) if offset is None else offset + self._steady()

    def latest(self) -> datetime:
        """The upper bound of the store's time, for deadlines that must not come early."""
        return from_micros(self.micros() + self._width)

    def _read_directly(self) -> int:
        wall, steady = to_micros(self._local.now()), self._steady()
        offset = wall - steady
        before = offset if self._offset is None else self._offset
        if -_TOLERATED <= offset - before <= _TOLERATED:
            self._offset, self._doubt = offset, 0
            return wall
        if self._question(offset - before):
            self._offset = offset
            return wall
        return before + steady

    def read(self, at: datetime, sent: float) -> None:
        """Record a reading of the store's clock for a request that was sent at that time."""
        steady = self._steady()
        # The store read its clock some time between the request and the answer.
        least, greatest = to_micros(at) - steady, to_micros(at) - round(sent * 1e6)
        if self._offset is None:
            self._begin_at(least, greatest)
        elif self._offset - _TOLERATED <= greatest and least <= self._offset + _TOLERATED:
            self._samples.append((least, greatest))
            self._settle()
        elif self._question(least - self._offset):
            self._begin_at(least, greatest)

    def _steady(self) -> int:
        return round(self.monotonic() * 1e6)

    def _begin_at(self, least: int, greatest: int) -> None:
        self._samples.clear()
        self._samples.append((least, greatest))
        self._settle()

    def _settle(self) -> None:
        """Use the most accurate of the latest readings, so that a slow drift is followed."""
        offset = max(least for least, _ in self._samples)
        self._width = max(0, min(greatest for _, greatest in self._samples) - offset)
        self._offset, self._doubt = offset, 0

    def _question(self, off: int) -> bool:
        """Whether to accept a clock that differs by this much."""
        now = self._local.monotonic()
        if not self._doubt or abs(off - self._doubt) > _TOLERATED:
            self._doubt, self._doubted_since = off, now
        if now - self._doubted_since < BELIEVE_AFTER:
            return False
        self._doubt, self.followed = 0, self.followed + 1
        return True
