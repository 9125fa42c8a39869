"""Waiting for runs to end: one lookup for all who wait, made when the bell says that something has ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from duly.backends.postgres.listing import ended_of
from duly.backends.postgres.notify import ENDED
from duly.backends.postgres.session import QUICK, Session
from duly.model import Run
from duly.ports.waiting import shielded

_LONGEST = 30.0  # seconds between looks, should every ring be lost

# Those of the runs asked for that have ended, and the ids of those that are gone.
Found = tuple[list[Run], list[str]]


class CompletionWaiters:
    """Belongs to one event loop. However many wait, a ring makes one of them look for all."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wanted: dict[object, Sequence[str]] = {}
        self._look: tuple[int, frozenset[str], asyncio.Future[Found]] | None = None

    async def wait(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        """Those of these runs that have ended, as soon as there is one, or one is gone; none after so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout == math.inf else loop.time() + timeout
        notifier, ticket = self._session.notifier, object()
        await notifier.listen()
        self._wanted[ticket] = run_ids
        try:
            while True:
                heard = notifier.rings[ENDED]
                ended, gone = await self._found(heard, run_ids)
                mine = {run.id: run for run in ended}
                left = deadline - loop.time()
                if not mine.keys().isdisjoint(run_ids) or not set(gone).isdisjoint(run_ids) or left <= 0:
                    return [mine[run_id] for run_id in run_ids if run_id in mine]
                await notifier.wait(ENDED, heard, min(left, _LONGEST))
        finally:
            del self._wanted[ticket]

    async def _found(self, heard: int, run_ids: Sequence[str]) -> Found:
        """What is known as of that ring: by a lookup that somebody else has made since, or one of our own for all."""
        look = self._look
        if look is not None and look[0] >= heard and look[1].issuperset(run_ids) and not look[2].done():
            return await shielded(look[2])
        wanted = frozenset(run_id for each in self._wanted.values() for run_id in each)
        asked = asyncio.ensure_future(self._session.run(QUICK, lambda unit: ended_of(unit, sorted(wanted))))
        self._look = (heard, wanted, asked)
        return await shielded(asked)
