"""The store port on SQLite: changes go to the session's writer, lookups and listings to its readers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from duly.backends.rows import instant, micros, slices_of
from duly.backends.sqlite import listing, operating, pages, planning
from duly.backends.sqlite import values_and_logs as cabinet
from duly.backends.sqlite.file_clock import FileClock, boot_of
from duly.backends.sqlite.session import Session
from duly.backends.sqlite.transaction import Block, Joined
from duly.backends.sqlite.unit_of_work import UnitOfWork
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
from duly.ports import Clock, Transaction

_MOST = 1_000


class SqliteStore:
    """The control plane and the memory."""

    def __init__(self, session: Session, local: Clock, folder: Path) -> None:
        self._session = session
        boot = boot_of(local)
        self._file_clock = None if boot is None else FileClock(local, boot, folder)

    # --- definitions and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        for change in changes:
            if change.waiting is Waiting.CANCEL and change.expect is not None:
                await self._thin_out(change.record.name, change.expect, now)
        return await self._session.write(lambda unit: planning.save(unit, changes, unit.at(now)))

    async def _thin_out(self, name: str, expect: int, now: datetime | None) -> None:
        """Cancel a job's waiting runs before it is removed, a part at a time, but for the last ones.

        So that other processes, which wait for the file, never wait long.
        """
        waiting = await self._session.browse(lambda unit: planning.waiting_of(unit, name))
        for some in slices_of(waiting, _MOST)[:-1]:
            if not await self._session.write(partial(_cancel_some, name, expect, some, now)):
                break

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        await self._thin_out(name, expect, now)
        return await self._session.write(lambda unit: planning.remove(unit, name, expect, unit.at(now)))

    async def job(self, name: str) -> JobRecord | None:
        return await self._session.read(lambda unit: planning.find_job(unit, name))

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        return await self._session.browse(lambda unit: planning.find_jobs(unit, names, after, limit))

    async def install(self, shard: str, proposed: int) -> int:
        return await self._session.write(lambda unit: planning.install(unit, shard, proposed))

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        def work(unit: UnitOfWork) -> tuple[list[JobRecord], datetime | None]:
            records, following = planning.due(unit, shard, limit, unit.at(now))
            return records, instant(following)

        return await self._session.read(work)

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        return await self._session.write(lambda unit: planning.fire(unit, firings, shard, epoch, unit.at(now)))

    # --- records and history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        return await self._session.read(lambda unit: listing.find(unit, run_id, unit.at(now)))

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, now: datetime | None = None
    ) -> Page:
        return await self._session.browse(lambda unit: pages.page(unit, query, limit, cursor, unit.at(now)))

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        return await self._session.browse(lambda unit: listing.upcoming(unit, limit, job, unit.at(now)))

    async def next_runs(self, *, now: datetime | None = None) -> dict[str, datetime]:
        return await self._session.browse(listing.next_runs)

    async def covering(self, uid: str, at: datetime) -> Run | None:
        return await self._session.read(lambda unit: listing.covering(unit, uid, at, unit.at(None)))

    async def attempts(self, run_id: str) -> list[Attempt]:
        return await self._session.read(lambda unit: listing.attempts(unit, run_id))

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        return await self._session.browse(lambda unit: listing.statistics(unit, jobs))

    async def counts(self, *, now: datetime | None = None) -> Counts:
        return await self._session.browse(lambda unit: listing.counts(unit, unit.at(now)))

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        return await self._session.gear.endings.wait(run_ids, timeout)

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies: list[CancelReply] = []
        for some in slices_of(run_ids, _MOST):
            replies += await self._session.write(partial(_cancel, some, reason, now))
        return replies

    async def redrive(self, run_ids: Sequence[str], *, now: datetime | None = None) -> list[RedriveReply]:
        replies: list[RedriveReply] = []
        for some in slices_of(run_ids, _MOST):
            replies += await self._session.write(partial(_redrive, some, now))
        return replies

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        return await self._session.write(lambda unit: operating.purge(unit, state, micros(before), keep, limit))

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        return await self._session.write(lambda unit: operating.expire(unit, limit, unit.at(now)))

    # --- queues

    async def pause(self, queue: str) -> bool:
        return await self._session.write(lambda unit: operating.pause(unit, queue))

    async def resume(self, queue: str) -> bool:
        return await self._session.write(lambda unit: operating.resume(unit, queue))

    async def paused(self) -> set[str]:
        return await self._session.read(operating.paused)

    # --- small things

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        return await self._session.write(lambda unit: cabinet.append(unit, log, entries, expect, keep))

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        return await self._session.read(lambda unit: cabinet.read(unit, log, after, limit))

    async def get(self, kind: str, key: str) -> Item | None:
        return await self._session.read(lambda unit: cabinet.get(unit, kind, key))

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        return await self._session.write(lambda unit: cabinet.put(unit, kind, key, value, expect))

    async def items(self, kind: str) -> list[Item]:
        return await self._session.browse(lambda unit: cabinet.items(unit, kind))

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        return await self._session.write(lambda unit: cabinet.take(unit, bucket, tokens, rate, burst, unit.at(now)))

    # --- transactions

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        return Block(self._session, claim, timeout)

    def within(self, connection: Any) -> Transaction:
        return Joined(self._session, connection)

    # --- housekeeping

    async def migrate(self) -> list[str]:
        return await self._session.migrate()

    async def time(self) -> datetime:
        clock = self._file_clock
        if clock is None:
            return self._session.clock.now()
        now, offset = await self._session.read(clock.time)
        if offset is not None:
            await self._session.write(lambda unit: clock.write(unit, offset))
        return from_micros(now)


def _cancel_some(name: str, expect: int, seqs: Sequence[int], now: datetime | None, unit: UnitOfWork) -> bool:
    return planning.cancel_some(unit, name, expect, seqs, unit.at(now))


def _cancel(run_ids: Sequence[str], reason: str | None, now: datetime | None, unit: UnitOfWork) -> list[CancelReply]:
    return operating.cancel(unit, run_ids, reason, unit.at(now))


def _redrive(run_ids: Sequence[str], now: datetime | None, unit: UnitOfWork) -> list[RedriveReply]:
    return operating.redrive(unit, run_ids, unit.at(now))
