"""The store of the split stack: every verb is the store's own; after a commit other nodes are notified."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from duly.backends.split.notifier import Notifier
from duly.model import CancelReply, Claim, Fired, Firing, JobChange, JobRecord, Put, RedriveReply, Run
from duly.ports import Store, Transaction


class SplitStore:
    """All verbs not defined here are the store's."""

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        saved = await self._store.save(changes, now=now)
        await self._notifier.notify_all()
        return saved

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        fired = await self._store.fire(firings, shard, epoch, now=now)
        await self._notifier.runs_planned([run.ready_at for firing in firings for run in firing.runs])
        return fired

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies = await self._store.cancel(run_ids, reason, now=now)
        await self._notifier.notify_if(CancelReply.REQUESTED in replies)
        return replies

    async def redrive(
        self, run_ids: Sequence[str], *, payload: bytes | None = None, now: datetime | None = None
    ) -> list[RedriveReply]:
        replies = await self._store.redrive(run_ids, payload=payload, now=now)
        await self._notifier.notify_all()
        return replies

    async def backfill(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[bool]:
        added = await self._store.backfill(runs, now=now)
        await self._notifier.notify_all()
        return added

    async def resume(self, queue: str) -> bool:
        resumed = await self._store.resume(queue)
        await self._notifier.notify_all()
        return resumed

    async def thaw(self) -> None:
        await self._store.thaw()
        await self._notifier.notify_all()

    @asynccontextmanager
    async def transaction(self, claim: Claim, *, timeout: float) -> AsyncIterator[Transaction]:
        """Runs that are put inside the block are announced when it has committed."""
        async with self._store.transaction(claim, timeout=timeout) as transaction:
            recording = RecordingTransaction(transaction)
            yield recording
        await self._notifier.runs_added(recording.added)


class RecordingTransaction:
    """A transaction that records which runs were added in it."""

    def __init__(self, transaction: Transaction) -> None:
        self.added: list[Run] = []
        self._transaction = transaction

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await self._transaction.execute(sql, parameters)

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        answers = await self._transaction.put(runs)
        self.added += [run for run, answer in zip(runs, answers, strict=True) if answer.created]
        return answers
