"""The clock of a file: one time for all processes that use it, even if one of them has a wrong clock.

A file has no clock, but its machine has one. The first node stores the offset between the machine's wall clock and its
steady clock, which all processes share until the machine is restarted; the others use that offset. A process whose
own clock differs from the timestamps that the machine gives to files uses those timestamps. A step of the machine's
wall clock is followed after it has lasted for a while; a process whose clock was wrong from the start changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from duly.backends.sqlite.settling import BEAT
from duly.backends.sqlite.unit import SqliteUnit
from duly.model import to_micros
from duly.ports import Clock, SystemClock
from duly.ports.clock import BELIEVE_AFTER, TOLERANCE

_OFFSET = "clock_offset"
_BOOT = "clock_boot"
_DRIFT = 20_000  # microseconds that a slewed wall clock may differ before it is followed
_TOLERATED = round(TOLERANCE * 1e6)
_ABANDONED = 60_000_000  # microseconds without a heartbeat after which the stored offset is ignored


class FileClock:
    """The file's clock as one process computes it.

    `local` are the clocks of the process, `boot` says since which start of the machine its steady one counts, `folder`
    is where the machine's wall clock can be read.
    """

    def __init__(self, local: Clock, boot: str, folder: Path) -> None:
        self._local = local
        self._folder = folder
        self._boot = int.from_bytes(hashlib.sha256(boot.encode()).digest()[:6], "big")
        self._lead: int | None = None  # by how much the file's time was ahead of our wall clock when we last looked
        self._off_since: float | None = None

    async def time(self, unit: SqliteUnit) -> tuple[int, int | None]:
        """The file's time, in microseconds, and the offset to store, if it has changed."""
        steady = round(self._local.monotonic() * 1e6)
        wall = to_micros(self._local.now()) - steady
        written = unit.meta(_OFFSET) if unit.meta(_BOOT) == self._boot else None
        if written is None or (self._lead is None and _is_abandoned(unit, steady + written)):
            true = self._machines(wall)
            self._lead = true - wall
            return steady + true, true
        if self._lead is None:
            self._lead = written - wall
        # The offset if every clock had followed ours: it shows a step of our clock, unless others have stored that too.
        wanted = wall + self._lead
        if abs(wanted - written) <= _DRIFT:
            self._off_since = None
            return steady + written, None
        if abs(wanted - written) <= _TOLERATED or self._has_stayed():
            return steady + wanted, wanted
        return steady + written, None

    def _machines(self, wall: int) -> int:
        """How far the machine's wall clock is from its steady one.

        `wall` is by the process's own clocks: it is more precise, and used if it agrees with the time of a new file.
        """
        try:
            with tempfile.TemporaryFile(dir=self._folder) as made:
                shown = os.fstat(made.fileno()).st_mtime_ns // 1000
        except OSError:
            return wall
        true = shown - round(self._local.monotonic() * 1e6)  # read last: slightly behind rather than ahead
        return wall if abs(true - wall) <= _TOLERATED else true

    def _has_stayed(self) -> bool:
        now = self._local.monotonic()
        self._off_since = now if self._off_since is None else self._off_since
        return now - self._off_since >= BELIEVE_AFTER

    async def write(self, unit: SqliteUnit, offset: int) -> None:
        """Store what `time` returned."""
        unit.set_meta(_BOOT, self._boot)
        unit.set_meta(_OFFSET, offset)
        self._off_since = None


def boot_of(local: Clock) -> str | None:
    """Since which start of the machine a clock counts; None for one that does not say, such as that of a test."""
    return local.boot() if isinstance(local, SystemClock) else None


def _is_abandoned(unit: SqliteUnit, now: int) -> bool:
    beat = unit.meta(BEAT)
    return beat is None or abs(now - beat) > _ABANDONED
