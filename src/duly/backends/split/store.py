"""The store of the split stack: the truth itself, and what others should notice is rung for after the commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from duly.backends.split.notifier import Notifier
from duly.model import CancelReply, Claim, Fired, Firing, JobChange, JobRecord, Put, RedriveReply, Run
from duly.ports import Store, Transaction


class SplitStore:
    """Whatever is not said here is done by the store as it is."""

    def __init__(self, truth: Store, notifier: Notifier) -> None:
        self._truth = truth
        self._notifier = notifier

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._truth, verb)

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        saved = await self._truth.save(changes, now=now)
        await self._notifier.look()
        return saved

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        fired = await self._truth.fire(firings, shard, epoch, now=now)
        await self._notifier.due([run.ready_at for firing in firings for run in firing.runs])
        return fired

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        replies = await self._truth.cancel(run_ids, reason, now=now)
        if CancelReply.REQUESTED in replies:
            await self._notifier.look()
        return replies

    async def redrive(self, run_ids: Sequence[str], *, now: datetime | None = None) -> list[RedriveReply]:
        replies = await self._truth.redrive(run_ids, now=now)
        await self._notifier.look()
        return replies

    async def resume(self, queue: str) -> bool:
        resumed = await self._truth.resume(queue)
        await self._notifier.look()
        return resumed

    @asynccontextmanager
    async def transaction(self, claim: Claim, *, timeout: float) -> AsyncIterator[Transaction]:
        """Runs that are put inside the block are rung for when it has committed."""
        async with self._truth.transaction(claim, timeout=timeout) as within:
            noted = Noted(within)
            yield noted
        await self._notifier.added(noted.added)


class Noted:
    """A transaction that remembers which runs were added in it."""

    def __init__(self, within: Transaction) -> None:
        self.added: list[Run] = []
        self._within = within

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await self._within.execute(sql, parameters)

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        answers = await self._within.put(runs)
        self.added += [run for run, answer in zip(runs, answers, strict=True) if answer.created]
        return answers
