"""The queue of the split stack: every verb is the store's own; afterwards other nodes are notified."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from duly.backends.split.notifier import Notifier
from duly.model import Assignment, Claimed, Put, Run, Settlement, State
from duly.ports import Queue


class SplitQueue:
    """All verbs not defined here are the store's queue's."""

    def __init__(self, queue: Queue, notifier: Notifier) -> None:
        self._queue = queue
        self._notifier = notifier

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._queue, verb)

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        answers = await self._queue.put(runs, now=now)
        await self._notifier.runs_added(run for run, answer in zip(runs, answers, strict=True) if answer.created)
        return answers

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        count, next_due = await self._queue.promote(limit, now=now)
        self._notifier.next_due = next_due
        return count, next_due

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
        """The claim handles the entries that were read before, or leaves them to others if the node is full."""
        entries = self._notifier.claim_started()
        try:
            claimed = await self._queue.claim(node, queues, handlers, limit, lease, request, now=now)
        except BaseException:
            self._notifier.claim_failed(entries)
            raise
        self._notifier.claim_done(entries, handlers, limit, claimed)
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        fresh = await self._queue.settle(settlements)
        applied = [each for each, is_fresh in zip(settlements, fresh, strict=True) if is_fresh]
        again = [each for each in applied if each.state is State.PENDING and each.hold is None]
        await self._notifier.runs_returned((each.run_id, each.queue, each.ready_at) for each in again)
        return fresh

    async def unhold(self, key: str, limit: int) -> int:
        return await self._notifier.notify_if(await self._queue.unhold(key, limit))

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        given = await self._queue.assign(assignments)
        await self._notifier.notify_if(any(given))
        return given

    async def unassign(self, node: str, limit: int) -> int:
        """A node that stops takes back its own runs: it claims nothing more."""
        self._notifier.node_stops(node)
        return await self._notifier.notify_if(await self._queue.unassign(node, limit))

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        await self._notifier.wait(node, queues, timeout)
