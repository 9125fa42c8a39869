"""The queue port on SQLite. Each call is one function on the session's writer: a transaction, or part of one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from duly.backends.rows import answers, instant
from duly.backends.sqlite import adding, groups, leases, placing, settling
from duly.backends.sqlite import claiming as lending
from duly.backends.sqlite import transitions as moves
from duly.backends.sqlite import waiting_index as line
from duly.backends.sqlite.session import Session
from duly.backends.sqlite.unit_of_work import WORK, UnitOfWork
from duly.model import Assignment, Beat, Claim, Claimed, Put, Renewal, Run, Settlement, Share

_HOLDS = "SELECT hold, count(*) FROM {ns}_held GROUP BY hold"


class SqliteQueue:
    """Runs on their way: put, claimed, renewed, settled."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._heard = 0

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        return await self._session.write(lambda unit: adding.add(unit, runs, unit.at(now)))

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        return await self._session.write(partial(_promote, limit, now))

    async def claim(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        limit: int,
        lease: float,
        request: int,
        *,
        now: datetime | None = None,
    ) -> Claimed:
        def work(unit: UnitOfWork) -> Claimed:
            at = unit.at(now)
            asking = lending.Asking(node, queues, handlers, limit, request, at, at + _micros(lease))
            claims, next_due = lending.claim(unit, asking)
            return Claimed(claims, instant(next_due))

        return await self._session.write(work)

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        quiet = None if silence is None else _micros(silence)

        def work(unit: UnitOfWork) -> Renewal:
            at = unit.at(now)
            return leases.renew(unit, beats, quiet, at, at + _micros(lease))

        return await self._session.write(work)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        stale = await self._session.write(lambda unit: settling.settle(unit, settlements))
        return answers(settlements, stale)

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        quiet = None if silence is None else _micros(silence)

        def work(unit: UnitOfWork) -> list[Claim]:
            at = unit.at(now)
            return leases.reap(unit, limit, quiet, at, at + _micros(lease))

        return await self._session.write(work)

    async def unhold(self, key: str, limit: int) -> int:
        return await self._session.write(lambda unit: moves.unhold(unit, key, limit))

    async def holds(self) -> dict[str, int]:
        return await self._session.browse(lambda unit: dict(unit.all(_HOLDS)))

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        return await self._session.browse(lambda unit: placing.held(unit, key, limit, after, unit.at(now)))

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        def work(unit: UnitOfWork) -> Claim | None:
            at = unit.at(now)
            return lending.claim_held(unit, key, run_id, lending.Taking(node, request, at, at + _micros(lease)))

        return await self._session.write(work)

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        return await self._session.write(lambda unit: placing.assign(unit, assignments))

    async def unassign(self, node: str, limit: int) -> int:
        return await self._session.write(lambda unit: placing.unassign(unit, node, limit))

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        return await self._session.browse(lambda unit: placing.assigned(unit, unit.at(now)))

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        notifier = self._session.gear.notifier
        if notifier.listen():  # it may have rung while nobody listened
            return
        self._heard = await notifier.wait(WORK, self._heard, timeout)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _promote(limit: int, now: datetime | None, unit: UnitOfWork) -> tuple[int, datetime | None]:
    at = unit.at(now)
    looked_at = groups.promote(unit, line.survey(unit, at), limit, at)
    return looked_at, instant(line.next_due(unit, at))
