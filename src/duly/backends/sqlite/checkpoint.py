"""Relief for the writer: the log is copied into the file beside it, instead of by it.

SQLite does that at a commit that finds the log long, and lets that commit and all behind it wait for the disk. Copying
while others write cannot empty the log under a steady load; then the writer does it after all, only less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.backends.sqlite.unit_of_work import Row, UnitOfWork

_SHORTEST_REST = 0.1


def checkpoint(unit: UnitOfWork) -> list[Row]:
    """Copy what is in the log into the file, as far as nobody needs the old pages."""
    return unit.all("PRAGMA wal_checkpoint(PASSIVE)")


class Checkpointer:
    """Belongs to one event loop. One copy at a time, and a rest in between."""

    def __init__(self, start: Callable[[], asyncio.Future[list[Row]]]) -> None:
        self._start = start
        self._busy = False
        self._rested_at = 0.0

    def come(self) -> None:
        """Copy, unless that is being done or was done just now."""
        loop = asyncio.get_running_loop()
        if not self._busy and loop.time() >= self._rested_at:
            self._busy = True
            self._start().add_done_callback(self._done)

    def _done(self, copied: asyncio.Future[list[Row]]) -> None:
        self._busy = False
        self._rested_at = asyncio.get_running_loop().time() + _SHORTEST_REST
        if not copied.cancelled():
            copied.exception()  # whatever it was, the writer's own commit will meet it
