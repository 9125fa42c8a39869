"""Gathering: runs that are put while a call is under way travel together in the next one.

A lone caller pays one round trip and no waiting; fifty concurrent callers share one script. Whoever is cancelled while
waiting takes nothing from the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from duly.model import Put, Run

Send = Callable[[Sequence[Run]], Awaitable[list[Put]]]
_Waiting = tuple[Sequence[Run], "asyncio.Future[list[Put]]"]


class Gatherer:
    """Belongs to one event loop. `send` answers all runs of a call in order, or fails for all of them."""

    def __init__(self, send: Send, most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: deque[_Waiting] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._busy = False

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        """Send runs, at once if nothing is under way."""
        if self._busy:
            future: asyncio.Future[list[Put]] = asyncio.get_running_loop().create_future()
            self._waiting.append((runs, future))
            return await future
        self._busy = True
        try:
            return await self._send(runs)
        finally:
            if self._waiting:
                self._sending = asyncio.get_running_loop().create_task(self._send_waiting())
            else:
                self._busy = False

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                await self._send_some()
        finally:
            self._busy = False

    async def _send_some(self) -> None:
        together: list[_Waiting] = []
        runs: list[Run] = []
        while self._waiting and len(runs) < self._most:
            some, future = self._waiting.popleft()
            if not future.done():
                together.append((some, future))
                runs += some
        try:
            answers = await self._send(runs)
        except BaseException as exc:  # noqa: BLE001  # each caller gets it, the end of the loop included
            for _, future in together:
                if not future.done():
                    future.set_exception(exc)
            return
        start = 0
        for some, future in together:
            if not future.done():
                future.set_result(answers[start : start + len(some)])
            start += len(some)
