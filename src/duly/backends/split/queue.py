"""The queue of the split stack: every verb is the store's own, and what others should notice is rung for afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from duly.backends.split.notifier import Notifier
from duly.model import Assignment, Claimed, Put, Run, Settlement, State
from duly.ports import Queue


class SplitQueue:
    """Whatever is not said here is done by the store's queue as it is."""

    def __init__(self, truth: Queue, notifier: Notifier) -> None:
        self._truth = truth
        self._notifier = notifier

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._truth, verb)

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        answers = await self._truth.put(runs, now=now)
        await self._notifier.added(run for run, answer in zip(runs, answers, strict=True) if answer.created)
        return answers

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        looked_at, next_due = await self._truth.promote(limit, now=now)
        self._notifier.next_due = next_due
        return looked_at, next_due

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
        """What was read at the door before is looked after when the claim is made, or left to others if it is full."""
        entries = self._notifier.asks()
        try:
            claimed = await self._truth.claim(node, queues, handlers, limit, lease, request, now=now)
        except BaseException:
            self._notifier.failed(entries)
            raise
        self._notifier.claimed(entries, handlers, limit, claimed)
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        fresh = await self._truth.settle(settlements)
        applied = [each for each, is_fresh in zip(settlements, fresh, strict=True) if is_fresh]
        again = [each for each in applied if each.state is State.PENDING and each.hold is None]
        await self._notifier.returned((each.run_id, each.queue, each.ready_at) for each in again)
        return fresh

    async def unhold(self, key: str, limit: int) -> int:
        number = await self._truth.unhold(key, limit)
        if number:
            await self._notifier.look()
        return number

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        given = await self._truth.assign(assignments)
        if any(given):
            await self._notifier.look()
        return given

    async def unassign(self, node: str, limit: int) -> int:
        """Of its own accord a node takes its runs back when it stops: it claims nothing more."""
        self._notifier.leaves(node)
        number = await self._truth.unassign(node, limit)
        if number:
            await self._notifier.look()
        return number

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        await self._notifier.wait(node, queues, timeout)
