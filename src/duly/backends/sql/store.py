"""The store port on SQL: changes are transactions; lookups and listings delay neither a change nor each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from duly.backends.codec import instant, micros, slices_of
from duly.backends.sql import listing, operating, pages, planning, run_lines, values
from duly.backends.sql.moving.transfer import SqlTransfer
from duly.backends.sql.notify import CompletionWaiters
from duly.backends.sql.unit import SETTLING, STORE, Session, Task, Unit
from duly.model import (
    COUNTED,
    SCAN,
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
    LogLine,
    Page,
    RedriveReply,
    Report,
    Run,
    RunQuery,
    State,
    Waiting,
)
from duly.ports import Transaction

T = TypeVar("T")

_MOST = 1_000
_PATIENCE = 60.0  # seconds for a scan of all waiting runs when a job is removed: the backlog may be large


class SqlStore(SqlTransfer):
    """Definitions, records and history, values and logs."""

    def __init__(self, session: Session[Unit]) -> None:
        self._session = session
        self._waiters = CompletionWaiters(lambda: session.notifier, self._ended_of)

    async def _ended_of(self, run_ids: Sequence[str]) -> tuple[list[Run], list[str]]:
        return await self._session.read(lambda unit: listing.ended_of(unit, run_ids))

    # --- definitions and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        answers: list[JobRecord | None] = []
        for together in _slices(changes):
            [first, *_] = together
            if planning.is_creation(first):
                answers += await self._session.write(STORE, partial(planning.create, changes=together))
            else:
                cancels = first.waiting is Waiting.CANCEL and first.expect is not None
                timeout = await self._thin_out(first.record.name, first.expect or 0, now) if cancels else None
                answers.append(await self._session.write(STORE, _at(now, planning.change, first), timeout))
        return answers

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        timeout = await self._thin_out(name, expect, now)
        return await self._session.write(STORE, _at(now, planning.remove, name, expect), timeout)

    async def _thin_out(self, name: str, expect: int, now: datetime | None) -> float:
        """Cancel a job's waiting runs before it is removed, in slices, except for the last ones.

        No caller waits long for the locks of a slice. Returns the deadline of the removal itself, which scans all that
        waits once more.
        """
        waiting = await self._session.read(
            lambda unit: planning.waiting_of(unit, name), listing=True, timeout=_PATIENCE
        )
        for some in slices_of(waiting, _MOST)[:-1]:
            if not await self._session.write(STORE, _at(now, planning.cancel_some, name, expect, some)):
                break
        return _PATIENCE

    async def job(self, name: str) -> JobRecord | None:
        return await self._session.read(lambda unit: planning.find_job(unit, name))

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        return await self._list(lambda unit: planning.find_jobs(unit, names, after, limit))

    async def handlers(self, *, retired: bool) -> set[str]:
        return await self._list(lambda unit: planning.handlers(unit, retired))

    async def jobs_of(self, handler: str, *, retired: bool, after: str = "", limit: int) -> list[JobRecord]:
        return await self._list(lambda unit: planning.jobs_of(unit, handler, retired, after, limit))

    async def reindex(self, cursor: str = "") -> str | None:
        return None

    async def next_plans(self, limit: int) -> list[tuple[str, datetime]]:
        return await self._list(lambda unit: planning.next_plans(unit, limit))

    async def install(self, shard: str, proposed: int) -> int:
        return await self._session.write_each(STORE, lambda unit: planning.install(unit, shard, proposed))

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        records, following = await self._session.read(lambda unit: planning.due(unit, shard, limit, unit.moment(now)))
        return records, instant(following)

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        return await self._session.write(STORE, _at(now, planning.fire, firings, shard, epoch))

    # --- records and history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        return await self._session.read(_shown(now, listing.find, run_id))

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, scan: int = SCAN, now: datetime | None = None
    ) -> Page:
        return await self._list(_shown(now, pages.page, query, limit, cursor, min(scan, SCAN)))

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        return await self._list(_shown(now, listing.upcoming, limit, job))

    async def next_runs(self, jobs: Sequence[str] | None = None, *, now: datetime | None = None) -> dict[str, datetime]:
        if jobs is None:
            return await self._list(listing.next_runs)
        return await self._list(_shown(now, listing.next_runs_of, jobs))

    async def covering(self, uid: str, at: datetime) -> Run | None:
        return await self._session.read(_shown(None, listing.covering, uid, at))

    async def ledger(
        self,
        uid: str,
        start: datetime,
        until: datetime,
        limit: int,
        expected: Sequence[datetime] = (),
        *,
        now: datetime | None = None,
    ) -> list[Run]:
        return await self._session.read(_shown(now, listing.ledger, uid, start, until, limit))

    async def attempts(self, run_id: str) -> list[Attempt]:
        return await self._session.read(lambda unit: listing.attempts(unit, run_id))

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        return await self._list(lambda unit: listing.statistics(unit, jobs))

    async def counts(self, *, scan: int = COUNTED, now: datetime | None = None) -> Counts:
        return await self._list(lambda unit: listing.counts(unit, unit.moment(now), scan))

    async def _list(self, task: Task[T]) -> T:
        return await self._session.read(task, listing=True)

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        return await self._waiters.wait(run_ids, timeout)

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies: list[CancelReply] = []
        for some in slices_of(run_ids, _MOST):
            replies += await self._session.write(STORE, _at(now, operating.cancel, some, reason))
        return replies

    async def redrive(
        self, run_ids: Sequence[str], *, payload: bytes | None = None, now: datetime | None = None
    ) -> list[RedriveReply]:
        replies: list[RedriveReply] = []
        for some in slices_of(run_ids, _MOST):
            replies += await self._session.write(STORE, _at(now, operating.redrive, some, payload))
        return replies

    async def backfill(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[bool]:
        return await self._session.write(STORE, _at(now, operating.backfill, runs))

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        return await self._session.write(STORE, lambda unit: operating.purge(unit, state, micros(before), keep, limit))

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        return await self._session.write_each(STORE, _at(now, operating.expire, limit))

    # --- logs of runs

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        return await self._session.write(SETTLING, lambda unit: run_lines.report(unit, reports))

    async def lines(
        self, run_id: str, after: int = 0, limit: int = 1_000, *, attempt: int | None = None
    ) -> list[LogLine]:
        return await self._session.read(lambda unit: run_lines.lines(unit, run_id, after, limit, attempt))

    # --- queues

    async def pause(self, queue: str) -> bool:
        return await self._session.write(STORE, lambda unit: operating.pause(unit, queue))

    async def resume(self, queue: str) -> bool:
        return await self._session.write(STORE, lambda unit: operating.resume(unit, queue))

    async def paused(self) -> set[str]:
        return await self._session.read(operating.paused)

    # --- values and logs

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        return await self._session.write(STORE, lambda unit: values.append(unit, log, entries, expect, keep))

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        return await self._session.read(lambda unit: values.read(unit, log, after, limit))

    async def get(self, kind: str, key: str) -> Item | None:
        return await self._session.read(lambda unit: values.get(unit, kind, key))

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        return await self._session.write(STORE, lambda unit: values.put(unit, kind, key, value, expect))

    async def items(self, kind: str) -> list[Item]:
        return await self._list(lambda unit: values.items(unit, kind))

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        return await self._session.write(STORE, lambda unit: values.take(unit, bucket, tokens, rate, burst, now))

    # --- transactions and housekeeping

    @abstractmethod
    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]: ...

    @abstractmethod
    def within(self, connection: Any) -> Transaction: ...

    @abstractmethod
    async def migrate(self) -> list[str]: ...

    @abstractmethod
    async def time(self) -> datetime: ...


def _at(now: datetime | None, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> Task[T]:
    """A task that gets the instant at which it happens as its last argument."""

    async def task(unit: Unit) -> T:
        return await work(unit, *arguments, await unit.at(now))

    return task


def _shown(now: datetime | None, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> Task[T]:
    """The same for what is only shown."""

    async def task(unit: Unit) -> T:
        return await work(unit, *arguments, await unit.shown_at(now))

    return task


def _slices(changes: Sequence[JobChange]) -> list[list[JobChange]]:
    """Changes in their order, adjacent creations together, every other one separately."""
    slices: list[list[JobChange]] = []
    for change in changes:
        if slices and planning.is_creation(change) and planning.is_creation(slices[-1][0]):
            slices[-1].append(change)
        else:
            slices.append([change])
    return slices
