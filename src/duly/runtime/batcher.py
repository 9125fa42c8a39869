"""A batcher: sends at once when nothing is under way, and together what gathers behind it.

A lone caller pays one round trip and no waiting; fifty concurrent callers share one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Belongs to one event loop. `send` answers a batch in order, or fails for all of it."""

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[Sequence[R]]], most: int = 500) -> None:
        self._send = send
        self._most = most
        self._busy = False
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._draining: asyncio.Task[None] | None = None

    async def __call__(self, item: T) -> R:
        """Send one item and return its answer."""
        if self._busy:
            future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
            self._waiting.append((item, future))
            return await future
        self._busy = True
        try:
            [answer] = await self._send([item])
            return answer
        finally:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._busy = False

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._send_batch([self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))])
        finally:
            self._busy = False

    async def _send_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        wanted = [(item, future) for item, future in batch if not future.done()]
        try:
            answers = await self._send([item for item, _ in wanted])
        except BaseException as exc:  # noqa: BLE001  # each caller gets it, cancellation of the loop included
            for _, future in wanted:
                if not future.done():
                    future.set_exception(exc)
        else:
            for (_, future), answer in zip(wanted, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
