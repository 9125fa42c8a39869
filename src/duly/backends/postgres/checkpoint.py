"""Relief for claims: the dead rows that they leave behind are swept away before they have to be walked over.

Every claimed and every settled run leaves a dead row in a small table, at the very place where the next claim begins to
look. The server sweeps once a minute at best; a busy node cannot wait so long, and asks for it after so many runs.
"""

from __future__ import annotations

import asyncio

from duly.backends.postgres.connection import Lanes
from duly.ports.waiting import noticed

_AFTER = 20_000
_LANE = "relief"
_SWEEP = "VACUUM (SKIP_LOCKED, TRUNCATE false, INDEX_CLEANUP on, PARALLEL 0) {ns}.waiting, {ns}.claims"


class Checkpointer:
    """Belongs to one event loop. One sweep at a time."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._lent = 0
        self._sweep: asyncio.Future[None] | None = None

    def after(self, lent: int) -> None:
        """So many runs have been lent: sweep if they have become many. Not through a pooler, which lets nobody."""
        self._lent += lent
        if self._lent >= _AFTER and self._sweep is None and not self._lanes.pooled:
            self._lent = 0
            self._sweep = asyncio.ensure_future(self.sweep())
            self._sweep.add_done_callback(self._done)

    async def sweep(self) -> None:
        """Sweep now, beside whatever else is going on."""
        sql = self._lanes.texts[_SWEEP]
        await self._lanes[_LANE].run(lambda connection: connection.execute(sql))

    def _done(self, sweep: asyncio.Future[None]) -> None:
        self._sweep = None
        noticed(sweep)  # whatever it was: the server sweeps too, and the next claim meets what is lasting
