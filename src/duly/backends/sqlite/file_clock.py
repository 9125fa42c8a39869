"""The clock of a file: one time for all processes that use it, even if one of them has a wrong clock.

A file has no clock of its own. The first node writes down how far its wall clock is from the machine's steady clock,
which all processes share until the machine is restarted; the others go by that. A step of the machine's wall clock is
followed when it has stayed for a while; a process whose clock was wrong from the beginning changes nothing.
"""

from __future__ import annotations

import hashlib

from duly.backends.sqlite.leases import BEAT
from duly.backends.sqlite.unit_of_work import UnitOfWork
from duly.model import to_micros
from duly.ports import Clock, SystemClock
from duly.ports.clock import BELIEVE_AFTER, TOLERANCE

_OFFSET = "clock_offset"
_BOOT = "clock_boot"
_DRIFT = 20_000  # microseconds: what a wall clock that is being corrected gently may differ before it is followed
_TOLERATED = round(TOLERANCE * 1e6)
_ABANDONED = 60_000_000  # microseconds without a beat after which nobody goes by what is written


class FileClock:
    """What one process makes of it. `local` are the machine's clocks, `boot` says since which start of the machine."""

    def __init__(self, local: Clock, boot: str) -> None:
        self._local = local
        self._boot = int.from_bytes(hashlib.sha256(boot.encode()).digest()[:6], "big")
        self._lead: int | None = None  # by how much the file's time was ahead of our wall clock when we last looked
        self._off_since: float | None = None

    def time(self, unit: UnitOfWork) -> tuple[int, int | None]:
        """The file's time, in microseconds, and what should be written down because of it, if anything."""
        steady = round(self._local.monotonic() * 1e6)
        wall = to_micros(self._local.now()) - steady
        written = unit.meta(_OFFSET) if unit.meta(_BOOT) == self._boot else None
        if written is None or (self._lead is None and _is_abandoned(unit, steady + written)):
            self._lead = 0
            return steady + wall, wall
        if self._lead is None:
            self._lead = written - wall
        # What would be written if all had kept step with our wall clock: its step, unless others have noted that too.
        wanted = wall + self._lead
        if abs(wanted - written) <= _DRIFT:
            self._off_since = None
            return steady + written, None
        if abs(wanted - written) <= _TOLERATED or self._has_stayed():
            return steady + wanted, wanted
        return steady + written, None

    def _has_stayed(self) -> bool:
        now = self._local.monotonic()
        self._off_since = now if self._off_since is None else self._off_since
        return now - self._off_since >= BELIEVE_AFTER

    def write(self, unit: UnitOfWork, offset: int) -> None:
        """Write down what `time` asked for."""
        unit.set_meta(_BOOT, self._boot)
        unit.set_meta(_OFFSET, offset)
        self._off_since = None


def boot_of(local: Clock) -> str | None:
    """Since which start of the machine a clock counts; None for one that does not say, such as that of a test."""
    return local.boot() if isinstance(local, SystemClock) else None


def _is_abandoned(unit: UnitOfWork, now: int) -> bool:
    beat = unit.meta(BEAT)
    return beat is None or abs(now - beat) > _ABANDONED
