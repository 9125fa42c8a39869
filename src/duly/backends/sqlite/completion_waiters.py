"""Waiting for runs to end: one lookup for all who wait, made when the bell says that something has ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from duly.backends.sqlite.notify import Notifier
from duly.backends.sqlite.unit_of_work import ENDED
from duly.errors import BackendError
from duly.model import Run

# Those of the runs asked for that have ended, and the ids of those that are gone.
Found = tuple[list[Run], list[str]]
Look = Callable[[Sequence[str]], asyncio.Future[Found]]


class CompletionWaiters:
    """Belongs to one event loop. However many wait, at most one lookup for them is on its way."""

    def __init__(self, notifier: Notifier, look: Look) -> None:
        self._notifier = notifier
        self._look = look
        self._waiting: dict[asyncio.Future[list[Run]], Sequence[str]] = {}
        self._looking = False
        self._again = False
        self._closed = False
        notifier.on_ring(ENDED, self._sweep)

    async def wait(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        """Those of these runs that have ended, as soon as there is one, or one is gone; none after so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout == math.inf else loop.time() + timeout
        self._notifier.listen()
        waiter: asyncio.Future[list[Run]] = loop.create_future()
        self._waiting[waiter] = run_ids
        try:
            _settle(waiter, run_ids, await self._look(run_ids))
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            return []
        finally:
            del self._waiting[waiter]

    def _sweep(self) -> None:
        """Look for the ends of all that is waited for; once more if the bell rings meanwhile."""
        self._again = self._looking
        if self._looking or self._closed or not self._waiting:
            return
        self._looking = True
        wanted = {run_id for run_ids in self._waiting.values() for run_id in run_ids}
        self._look(sorted(wanted)).add_done_callback(self._seen)

    def _seen(self, look: asyncio.Future[Found]) -> None:
        self._looking = False
        error = None if look.cancelled() else look.exception()
        for waiter, run_ids in self._waiting.items():
            if look.cancelled():
                waiter.cancel()
            elif error is None:
                _settle(waiter, run_ids, look.result())
            elif not waiter.done():
                waiter.set_exception(error)
        if self._again:
            self._sweep()

    def close(self) -> None:
        """Nobody will look any more: those who wait are told."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(BackendError("the session was closed while a run was waited for"))


def _settle(waiter: asyncio.Future[list[Run]], run_ids: Sequence[str], found: Found) -> None:
    """End the wait for these runs if one of them has ended or is gone."""
    ended = {run.id: run for run in found[0]}
    mine = [ended[run_id] for run_id in run_ids if run_id in ended]
    if not waiter.done() and (mine or not set(found[1]).isdisjoint(run_ids)):
        waiter.set_result(mine)
