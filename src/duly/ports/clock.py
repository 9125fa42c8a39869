"""Clocks: the machine's own, and the store's as this process has measured it.

The store's clock decides about due times, leases and everything else that several nodes must agree on. A node's own
clock may be wrong by minutes. `StoreClock` tells the store's time without asking each time: it measures how far the
store's clock is from one of the machine's that never jumps, and it does not run ahead of the store.

Waiting is always asyncio's, so that a simulated event loop owns time.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from duly.model import from_micros, to_micros

# Linux stops CLOCK_MONOTONIC while the machine is suspended; a lease goes on all the same.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

TOLERANCE = 1.0  # by how much the store's clock may differ from what is expected before it is doubted
BELIEVE_AFTER = 30.0  # how long a clock that has jumped must stay where it is to be believed
_SAMPLES = 12
_TOLERATED = round(TOLERANCE * 1e6)


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


class _Sample(NamedTuple):
    """One reading: the store's time minus the steady clock's, and the machine's wall time minus the same."""

    offset: int
    wall: int


class StoreClock:
    """The time of one store. Shared by all sessions of a process on it, and safe to read from any thread.

    Of a store in this process or file the clock is the machine's own, read each time (`direct`). Of a server it is
    measured: each reading says what the time was before its answer arrived, so the latest of several is nearest to the
    truth and not ahead of it.

    A reading that differs from what is expected is doubted: a step of the store's clock by ten minutes must not start
    the runs of the next ten minutes. It is believed when it stays, or when the machine's own clock has moved likewise:
    then it is this machine that stood still.
    """

    def __init__(self, local: Clock, *, direct: bool = False) -> None:
        self._local = local
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self._offset: int | None = None
        self._doubted_since = 0.0
        self._doubt = 0
        self.direct = direct
        self.followed = 0  # how many jumps were believed

    @property
    def known(self) -> bool:
        """Whether the store's clock has been read."""
        return self.direct or self._offset is not None

    @property
    def doubt(self) -> float:
        """By how many seconds the store's clock differs from what is believed; 0 if it is believed."""
        return self._doubt / 1e6

    def monotonic(self) -> float:
        return self._local.monotonic()

    def now(self) -> datetime:
        return from_micros(self.micros())

    def micros(self) -> int:
        """The store's time in microseconds since 1970. Before the first reading it is the machine's."""
        if self.direct:
            return self._read_directly()
        offset = self._offset
        return to_micros(self._local.now()) if offset is None else offset + self._steady()

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
        """Take note of what the store's clock said to a question that was sent then."""
        steady = self._steady()
        sample = _Sample(to_micros(at) - steady, to_micros(self._local.now()) - steady)
        if self._offset is None:
            self._begin_at(sample)
            return
        # The store looked at its clock some time between the question and its answer.
        underway = steady - round(sent * 1e6)
        off = sample.offset - self._offset
        if -_TOLERATED - underway <= off <= _TOLERATED:
            self._samples.append(sample)
            self._offset, self._doubt = max(each.offset for each in self._samples), 0
            return
        stood_still = abs(off - (sample.wall - self._samples[-1].wall)) <= _TOLERATED + underway
        if self._question(off, at_once=stood_still):
            self._begin_at(sample)

    def _steady(self) -> int:
        return round(self._local.monotonic() * 1e6)

    def _begin_at(self, sample: _Sample) -> None:
        self._samples.clear()
        self._samples.append(sample)
        self._offset, self._doubt = sample.offset, 0

    def _question(self, off: int, *, at_once: bool = False) -> bool:
        """Whether a clock that is off by so much is to be believed."""
        now = self._local.monotonic()
        if not self._doubt or abs(off - self._doubt) > _TOLERATED:
            self._doubt, self._doubted_since = off, now
        if not at_once and now - self._doubted_since < BELIEVE_AFTER:
            return False
        self._doubt, self.followed = 0, self.followed + 1
        return True
