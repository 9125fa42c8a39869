"""The store port on PostgreSQL: changes are transactions, lookups and listings have lanes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Any

from duly.backends.postgres import listing, migrating, operating, pages, planning
from duly.backends.postgres import values_and_logs as cabinet
from duly.backends.postgres.completion_waiters import CompletionWaiters
from duly.backends.postgres.session import LISTING, QUICK, STORE, Session
from duly.backends.postgres.transaction import Block, Joined
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.backends.rows import instant, micros, slices_of
from duly.model import (
    Attempt,
    CancelReply,
    Claim,
    Counts,
    Entry,
    Fired,
    Firing,
    Item,
    JobChange,
    JobRecord,
    JobStatistics,
    Page,
    RedriveReply,
    Run,
    RunQuery,
    State,
    Waiting,
    from_micros,
)
from duly.ports import Transaction

_MOST = 1_000
_PATIENCE = 60.0  # seconds for a walk over all that waits: a backlog may be large, and somebody removes a job


class PostgresStore:
    """The control plane and the memory."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._endings = CompletionWaiters(session)

    # --- definitions and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        answers: list[JobRecord | None] = []
        for together in _slices(changes):
            [first, *_] = together
            if planning.is_creation(first):
                answers += await self._session.transact(STORE, partial(planning.create, changes=together))
            else:
                cancels = first.waiting is Waiting.CANCEL
                timeout = await self._thin_out(first.record.name, first.expect, now) if cancels else None
                answers.append(await self._session.transact(STORE, _at(now, planning.change, first), timeout))
        return answers

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        timeout = await self._thin_out(name, expect, now)
        return await self._session.transact(STORE, _at(now, planning.remove, name, expect), timeout)

    async def _thin_out(self, name: str, expect: int | None, now: datetime | None) -> float | None:
        """Cancel a job's waiting runs before it is removed, a part at a time, but for the last ones.

        Nobody waits long for the locks of a part. Returns the deadline of the removal itself, which walks over all that
        waits once more.
        """
        waiting = await self._session.run(LISTING, lambda unit: planning.waiting_of(unit, name), _PATIENCE)
        for some in slices_of(waiting, _MOST)[:-1]:
            if not await self._session.transact(STORE, _at(now, planning.cancel_some, name, expect, some)):
                break
        return _PATIENCE

    async def job(self, name: str) -> JobRecord | None:
        return await self._session.run(QUICK, lambda unit: planning.find_job(unit, name))

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        return await self._session.run(LISTING, lambda unit: planning.find_jobs(unit, names, after, limit))

    async def install(self, shard: str, proposed: int) -> int:
        return await self._session.run(STORE, lambda unit: planning.install(unit, shard, proposed))

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        at = self._session.moment(now)
        records, following = await self._session.run(STORE, lambda unit: planning.due(unit, shard, limit, at))
        return records, instant(following)

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        return await self._session.transact(STORE, _at(now, planning.fire, firings, shard, epoch))

    # --- records and history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        return await self._session.run(QUICK, lambda unit: listing.find(unit, run_id, self._session.believed(now)))

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, now: datetime | None = None
    ) -> Page:
        return await self._session.run(LISTING, _at(now, pages.page, query, limit, cursor))

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        return await self._session.run(LISTING, _at(now, listing.upcoming, limit, job))

    async def next_runs(self, *, now: datetime | None = None) -> dict[str, datetime]:
        return await self._session.run(LISTING, listing.next_runs)

    async def covering(self, uid: str, at: datetime) -> Run | None:
        return await self._session.run(QUICK, lambda unit: listing.covering(unit, uid, at))

    async def attempts(self, run_id: str) -> list[Attempt]:
        return await self._session.run(QUICK, lambda unit: listing.attempts(unit, run_id))

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        return await self._session.run(LISTING, lambda unit: listing.statistics(unit, jobs))

    async def counts(self, *, now: datetime | None = None) -> Counts:
        return await self._session.run(LISTING, lambda unit: listing.counts(unit, self._session.moment(now)))

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        return await self._endings.wait(run_ids, timeout)

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies: list[CancelReply] = []
        for some in slices_of(run_ids, _MOST):
            replies += await self._session.transact(STORE, _at(now, operating.cancel, some, reason))
        return replies

    async def redrive(self, run_ids: Sequence[str], *, now: datetime | None = None) -> list[RedriveReply]:
        replies: list[RedriveReply] = []
        for some in slices_of(run_ids, _MOST):
            replies += await self._session.transact(STORE, _at(now, operating.redrive, some))
        return replies

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        return await self._session.transact(
            STORE, lambda unit: operating.purge(unit, state, micros(before), keep, limit)
        )

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        return await self._session.run(STORE, _at(now, operating.expire, limit))

    # --- queues

    async def pause(self, queue: str) -> bool:
        return await self._session.transact(STORE, lambda unit: operating.pause(unit, queue))

    async def resume(self, queue: str) -> bool:
        return await self._session.transact(STORE, lambda unit: operating.resume(unit, queue))

    async def paused(self) -> set[str]:
        return await self._session.run(STORE, operating.paused)

    # --- small things

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        return await self._session.transact(STORE, lambda unit: cabinet.append(unit, log, entries, expect, keep))

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        return await self._session.run(QUICK, lambda unit: cabinet.read(unit, log, after, limit))

    async def get(self, kind: str, key: str) -> Item | None:
        return await self._session.run(QUICK, lambda unit: cabinet.get(unit, kind, key))

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        return await self._session.transact(STORE, lambda unit: cabinet.put(unit, kind, key, value, expect))

    async def items(self, kind: str) -> list[Item]:
        return await self._session.run(LISTING, lambda unit: cabinet.items(unit, kind))

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        return await self._session.transact(STORE, lambda unit: cabinet.take(unit, bucket, tokens, rate, burst, now))

    # --- transactions

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        return Block(self._session, claim, timeout)

    def within(self, connection: Any) -> Transaction:
        return Joined(self._session, connection)

    # --- housekeeping

    async def migrate(self) -> list[str]:
        return await migrating.migrate(self._session.lanes)

    async def time(self) -> datetime:
        return from_micros(await self._session.run(QUICK, lambda unit: unit.server_clock()))


def _at(now: datetime | None, work: Any, *arguments: Any) -> Any:
    """A task that is given, last, the instant at which it happens."""

    async def task(unit: UnitOfWork) -> Any:
        return await work(unit, *arguments, await unit.at(now))

    return task


def _slices(changes: Sequence[JobChange]) -> list[list[JobChange]]:
    """Changes in their order, neighbouring creations together, every other one by itself."""
    slices: list[list[JobChange]] = []
    for change in changes:
        if slices and planning.is_creation(change) and planning.is_creation(slices[-1][0]):
            slices[-1].append(change)
        else:
            slices.append([change])
    return slices
