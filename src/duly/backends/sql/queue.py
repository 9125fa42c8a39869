"""The part of the queue port that both dialects share. Each puts, claims, renews and settles in its own fast way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Generic

from duly.backends.codec import instant
from duly.backends.sql import moves, placing
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import CLAIMING, STORE, Session, U
from duly.model import Assignment, Run, Share

_HOLDS = "SELECT hold, count(*) FROM {ns}.held GROUP BY hold"


class SqlQueue(ABC, Generic[U]):
    """Holds, placement and waiting."""

    def __init__(self, session: Session[U]) -> None:
        self._session = session
        self._heard = 0

    @abstractmethod
    async def _promote(self, unit: U, limit: int, now: datetime | None) -> tuple[int, int | None]:
        """How many due entrants were decided about, and when the next run is due."""

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        looked_at, next_due = await self._session.write(CLAIMING, lambda unit: self._promote(unit, limit, now))
        return looked_at, instant(next_due)

    async def unhold(self, key: str, limit: int) -> int:
        return await self._session.write(STORE, lambda unit: moves.unhold(unit, key, limit))

    async def holds(self) -> dict[str, int]:
        rows = await self._session.read(lambda unit: unit.all(_HOLDS), listing=True)
        return {row[0]: row[1] for row in rows}

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        async def task(unit: U) -> list[Run]:
            return await placing.held(unit, key, limit, after, await unit.shown_at(now))

        return await self._session.read(task)

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        return await self._session.write(STORE, lambda unit: placing.assign(unit, assignments))

    async def unassign(self, node: str, limit: int) -> int:
        return await self._session.write(STORE, lambda unit: placing.unassign(unit, node, limit))

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        return await self._session.read(lambda unit: placing.assigned(unit, unit.moment(now)))

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        notifier = self._session.notifier
        if await notifier.listen():  # a notification may have been missed before it listened
            self._heard = notifier.rings[WORK]
            return
        self._heard = await notifier.wait(WORK, self._heard, timeout)
