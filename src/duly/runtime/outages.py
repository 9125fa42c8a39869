"""Records outages, to explain later why no run started during them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duly.model.event import OutageNoted
from duly.model.outage import KEPT_OUTAGES, OUTAGES, Outage
from duly.ports import ValueStore
from duly.runtime.environment import Environment


class OutageLog:
    """Keeps outages until the store has recorded them."""

    def __init__(self, env: Environment, store: ValueStore) -> None:
        self._store = store
        self._clock = env.clock
        self._emit = env.emit
        self._unwritten: list[Outage] = []

    def note(self, since: datetime) -> None:
        """The store was unreachable from that time until now."""
        self._unwritten.append(Outage(since, max(since, self._clock.now())))

    async def write(self) -> None:
        """Store the outages that were noted, if there are any."""
        if not self._unwritten:
            return
        await self._store.append(OUTAGES, [msgspec.json.encode(each) for each in self._unwritten], keep=KEPT_OUTAGES)
        written, self._unwritten = self._unwritten, []
        for outage in written:
            self._emit(OutageNoted(outage.since, outage.until))
