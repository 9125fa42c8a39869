"""The part of the queue port that both dialects share. Each puts, claims, renews and settles in its own fast way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Generic

from duly.backends.codec import instant
from duly.backends.sql import moves, operating, placing
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import CLAIMING, STORE, Session, U, Unit
from duly.model import Assignment, Run, Share, to_micros

_BLOCKED = "SELECT name FROM {ns}.jobs WHERE blocked = {true} AND name = ANY($1::text[])"
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

    async def read_ahead(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        until: datetime,
        limit: int,
        start: int = 0,
        step: int = 1,
        *,
        now: datetime | None = None,
    ) -> tuple[list[Run], bool]:
        async def task(unit: U) -> tuple[list[Run], bool]:
            at = await unit.shown_at(now)
            seqs = await unit.dialect.coming(unit, at, to_micros(until), start + step * limit + 1)
            runs = await _startable(unit, seqs[start::step][:limit], node, at)
            wanted = [run for run in runs if queues is None or run.queue in queues]
            return [run for run in wanted if handlers is None or run.handler in handlers], len(
                seqs[start::step]
            ) > limit

        return await self._session.read(task)

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


async def _startable(unit: Unit, seqs: Sequence[int], node: str, now: int) -> list[Run]:
    """Those of these runs that a claim of this node would lend when they are ready, as things are now."""
    runs = [record.run for record in await moves.by_seqs(unit, seqs, now)]
    stopped = await operating.paused(unit)
    blocked = {row[0] for row in await unit.all(_BLOCKED, list({run.job for run in runs}))}
    return [
        run
        for run in runs
        if run.fence == 0
        and run.assignee in (None, node)
        and run.queue not in stopped
        and run.job not in blocked
        and run.damage is None
    ]
