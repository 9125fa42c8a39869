"""Waiting for changes: what the notifiers of both stores share, and how callers wait for runs to end."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from duly.model import Run
from duly.ports.waiting import shielded

# The kinds of change that others are woken for.
WORK = 1
ENDED = 2
SHARED = 4
KINDS = (WORK, ENDED, SHARED)

_LONGEST = 30.0  # seconds between looks, should every notification be lost

# Those of the runs asked for that have ended, and the ids of those that are gone.
Found = tuple[list[Run], list[str]]


class Notifier(ABC):
    """Wakes tasks of one session that wait for a kind of change. `rings` counts by kind. A notification is a hint."""

    def __init__(self) -> None:
        self.rings = dict.fromkeys(KINDS, 0)
        self._waiters: dict[int, set[asyncio.Future[None]]] = {kind: set() for kind in KINDS}

    @abstractmethod
    async def listen(self) -> bool:
        """Start to listen to other sessions; returns whether it started only now and may have missed notifications."""

    @abstractmethod
    async def wait(self, kind: int, heard: int, timeout: float) -> int:
        """The number of notifications of a kind, as soon as it differs from `heard`, at the latest after `timeout`."""

    def ring(self, kinds: int) -> None:
        """Wake the tasks of this session that wait for one of these kinds."""
        for kind in KINDS:
            if kinds & kind:
                self.rings[kind] += 1
                self._wake(kind)

    def _wake(self, kind: int) -> None:
        waiters, self._waiters[kind] = self._waiters[kind], set()
        for waiter in waiters:
            _settle(waiter)

    async def _sleep(self, kind: int, seconds: float) -> None:
        """Return when this kind is woken, at the latest after the timeout."""
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters[kind].add(waiter)
        timer = None if seconds == math.inf else loop.call_later(seconds, _settle, waiter)
        try:
            await waiter
        finally:
            self._waiters[kind].discard(waiter)
            if timer is not None:
                timer.cancel()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class CompletionWaiters:
    """Belongs to one event loop. However many tasks wait, after a notification one of them reads for all."""

    def __init__(self, notifier: Callable[[], Notifier], look: Callable[[Sequence[str]], Awaitable[Found]]) -> None:
        self._notifier = notifier
        self._look_up = look
        self._wanted: dict[object, Sequence[str]] = {}
        self._look: tuple[int, frozenset[str], asyncio.Future[Found]] | None = None

    async def wait(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        """Those of these runs that have ended, as soon as there is one, or one is gone; none after `timeout`."""
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout == math.inf else loop.time() + timeout
        notifier, ticket = self._notifier(), object()
        await notifier.listen()
        self._wanted[ticket] = run_ids
        try:
            while True:
                heard = notifier.rings[ENDED]
                ended, gone = await self._found(heard, run_ids)
                mine = {run.id: run for run in ended}
                left = deadline - loop.time()
                if not mine.keys().isdisjoint(run_ids) or not set(gone).isdisjoint(run_ids) or left <= 0:
                    return [mine[run_id] for run_id in run_ids if run_id in mine]
                await notifier.wait(ENDED, heard, min(left, _LONGEST))
        finally:
            del self._wanted[ticket]

    async def _found(self, heard: int, run_ids: Sequence[str]) -> Found:
        """The state as of that notification, from a lookup that another task has made since, or from a new one."""
        look = self._look
        if look is not None and look[0] >= heard and look[1].issuperset(run_ids) and not look[2].done():
            return await shielded(look[2])
        wanted = frozenset(run_id for each in self._wanted.values() for run_id in each)
        asked = asyncio.ensure_future(self._look_up(sorted(wanted)))
        self._look = (heard, wanted, asked)
        return await shielded(asked)
