"""The queue port on PostgreSQL: each call is one statement, or one transaction where it takes more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from duly.backends.handler_sets import HandlerSetCache
from duly.backends.postgres import adding, groups, leases, placing, settling
from duly.backends.postgres import claiming as lending
from duly.backends.postgres import transitions as moves
from duly.backends.postgres.checkpoint import Checkpointer
from duly.backends.postgres.connection import Connection
from duly.backends.postgres.handler_sets import named, tell
from duly.backends.postgres.notify import WORK
from duly.backends.postgres.session import BULK, CLAIMING, LISTING, QUICK, SETTLING, STORE, Session
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.backends.rows import answers, duration, instant
from duly.model import WAITING, Assignment, Beat, Claim, Claimed, Put, Renewal, Run, Settlement, Share

_MOST_ROUNDS = 100
_BULK = 500
_HOLDS = "SELECT hold, count(*) FROM {ns}.held GROUP BY hold"


class PostgresQueue:
    """Runs on their way: put, claimed, renewed, settled."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._relief = Checkpointer(session.lanes)
        self._staff = HandlerSetCache(named)
        self._heard = 0
        self._fenced: Connection | None = None

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        if not runs:
            return []
        if not adding.is_plain(runs):
            return await self._session.transact(QUICK, lambda unit: adding.add(unit, runs, now))
        if len(runs) < _BULK:
            return await self._put_plain(QUICK, runs, now)
        middle = len(runs) // 2  # two processes of the server share the work
        halves = (self._put_plain(QUICK, runs[:middle], now), self._put_plain(BULK, runs[middle:], now))
        one, other = await asyncio.gather(*halves)
        return one + other

    async def _put_plain(self, lane: str, runs: Sequence[Run], now: datetime | None) -> list[Put]:
        return await self._session.run(lane, lambda unit: adding.add_plain(unit, runs, now))

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        looked_at, next_due = await self._session.transact(
            CLAIMING, partial(_promote, limit, self._session.moment(now))
        )
        return looked_at, instant(next_due)

    # --- claiming

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
        asking = lending.Asking(
            node,
            None if queues is None else list(queues),
            handlers,
            self._staff.of(handlers),
            request,
            self._session.moment(now),
            duration(lease),
        )
        await self._raise_fences()
        lent = await self._lend(asking, limit, lending.Step(), deciding=False)
        if lent.fresh is None:
            await self._session.transact(CLAIMING, partial(_tell_staff, asking))
            lent = await self._lend(asking, limit, lending.Step(), deciding=False)
        if not lent.fresh:
            before = await self._session.run(CLAIMING, lambda unit: lending.lent_before(unit, asking))
            if before:
                return Claimed(before, instant(lent.next_due))
            lent = await self._lend(asking, limit, lending.Step(again=True), deciding=False)
        claims, step = lent.claims, lending.Step(again=True)
        for _ in range(_MOST_ROUNDS):
            if len(claims) >= limit or not _more(lent, step):
                break
            step = lending.Step.after(claims, put_back=step.put_back or lent.back)
            lent = await self._go_on(asking, limit - len(claims), lent, step)
            claims += lent.claims
        self._relief.after(len(claims))
        return Claimed(claims, instant(lent.next_due))

    async def _raise_fences(self) -> None:
        """Once per connection: it may lead to a copy of the store that lost its latest fences."""
        lane = self._session.lanes[CLAIMING]
        if self._fenced is None or self._fenced is not lane.live or self._fenced.is_closed():
            namespace = self._session.lanes.texts.namespace
            await self._session.transact(CLAIMING, lambda unit: lending.raise_fences(unit, namespace))
            self._fenced = lane.live

    async def _lend(self, asking: lending.Asking, limit: int, step: lending.Step, *, deciding: bool) -> lending.Lending:
        """Lend; where groups are about, decide about them first, else only if it turns out that it has to be."""
        if deciding:
            return await self._session.transact(
                CLAIMING, lambda unit: lending.decide_and_lend(unit, asking, limit, step)
            )
        return await self._session.run(CLAIMING, lambda unit: lending.lend(unit, asking, limit, step))

    async def _go_on(
        self, asking: lending.Asking, limit: int, lent: lending.Lending, step: lending.Step
    ) -> lending.Lending:
        """Clear what was in the way, and lend again."""
        if lent.held:
            await self._session.run(CLAIMING, lambda unit: lending.sift(unit, asking, limit, step))
        if lent.back:
            await self._session.transact(CLAIMING, lambda unit: lending.unhold_handlers(unit, asking.handlers, limit))
        return await self._lend(asking, limit, step, deciding=lent.in_the_way or lent.undecided is not None)

    # --- keeping and ending

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        quiet = None if silence is None else duration(silence)
        return await self._session.run(
            SETTLING, lambda unit: leases.renew(unit, beats, duration(lease), quiet, self._session.moment(now))
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        first, others = settling.sorted_out(settlements, self._session.memory.lent)
        if first.settled:
            others += await self._session.run(SETTLING, lambda unit: settling.complete(unit, first))
        if not others:
            return answers(settlements, [])
        places = {id(settled): place for place, settled in enumerate(settlements)}
        others.sort(key=lambda settled: places[id(settled)])
        stale = await self._session.transact(SETTLING, lambda unit: settling.settle_each(unit, others))
        return answers(settlements, stale)

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        quiet = None if silence is None else duration(silence)
        return await self._session.run(
            SETTLING, lambda unit: leases.reap(unit, limit, duration(lease), quiet, self._session.moment(now))
        )

    # --- holding

    async def hold(self, key: str, run_ids: Sequence[str]) -> list[str]:
        return await self._session.transact(STORE, partial(_hold, key, run_ids))

    async def unhold(self, key: str, limit: int) -> int:
        return await self._session.transact(STORE, lambda unit: moves.unhold(unit, key, limit))

    async def holds(self) -> dict[str, int]:
        rows = await self._session.run(LISTING, lambda unit: unit.all(_HOLDS))
        return {row[0]: row[1] for row in rows}

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        at = self._session.moment(now)
        return await self._session.run(QUICK, lambda unit: placing.held(unit, key, limit, after, at))

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        await self._raise_fences()
        taking = lending.Taking(node, request, self._session.moment(now), duration(lease))
        return await self._session.transact(CLAIMING, lambda unit: lending.claim_held(unit, key, run_id, taking))

    # --- placement

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        return await self._session.transact(STORE, lambda unit: placing.assign(unit, assignments))

    async def unassign(self, node: str, limit: int) -> int:
        return await self._session.transact(STORE, lambda unit: placing.unassign(unit, node, limit))

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        return await self._session.run(QUICK, lambda unit: placing.assigned(unit, self._session.moment(now)))

    # --- waiting

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        notifier = self._session.notifier
        if await notifier.listen():  # it may have rung while nobody listened
            self._heard = notifier.rings[WORK]
            return
        self._heard = await notifier.wait(WORK, self._heard, timeout)


def _more(lent: lending.Lending, step: lending.Step) -> bool:
    """Whether something was in the way, so that lending again brings more."""
    return (lent.back and not step.put_back) or lent.undecided is not None or lent.held > 0


async def _tell_staff(asking: lending.Asking, unit: UnitOfWork) -> None:
    assert asking.staff is not None
    assert asking.handlers is not None
    await tell(unit, asking.staff, asking.handlers, asking.now)


async def _promote(limit: int, now: int | None, unit: UnitOfWork) -> tuple[int, int | None]:
    due, at = await groups.due_groups(unit, limit, now)
    looked_at = 0
    if due:
        await unit.lock_groups(due)
        looked_at = await groups.decide_about(unit, due, at, limit)
    return looked_at, await groups.next_due(unit, at)


async def _hold(key: str, run_ids: Sequence[str], unit: UnitOfWork) -> list[str]:
    await moves.lock_groups_of(unit, run_ids)
    records = await moves.by_ids(unit, run_ids)
    waiting = [record for record in records.values() if record.run.state in WAITING and record.run.hold is None]
    waiting.sort(key=lambda record: record.seq)
    lines = await moves.lines_of(unit, waiting)
    left = await moves.leave(unit, waiting)
    taken = [record for record in waiting if record.seq in left]
    await moves.hold(unit, taken, [key] * len(taken))
    await moves.move_up(unit, [record for record in taken if record.entrant], lines)
    names = {record.run.id for record in taken}
    return [run_id for run_id in dict.fromkeys(run_ids) if run_id in names]
