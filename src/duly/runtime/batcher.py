"""A batcher: sends an item at once when no call is under way, and batches items that arrive during a call.

A lone caller pays one round trip and no waiting; fifty concurrent callers share one. Callers that were answered
together often call again together: then the first one waits for the others until the end of the event loop's iteration.
If two calls may be under way, many callers are split in two halves: the store processes one half while this process
serves the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from duly.runtime.isolation import Refused, send_isolated

T = TypeVar("T")
R = TypeVar("R")

_MANY = 32


class Batcher(Generic[T, R]):
    """Belongs to one event loop. `send` answers a batch in order; an item that it refuses does not fail the others."""

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[Sequence[R]]], most: int = 500, calls: int = 1) -> None:
        self._send = send
        self._most = most
        self._calls = calls
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._under_way: deque[int] = deque()  # sizes of the calls
        self._sending: set[asyncio.Task[None]] = set()
        self._crowded = False  # the last call had several items
        self._gathering = False

    async def __call__(self, item: T) -> R:
        """Send one item and return its answer."""
        if not (self._under_way or self._waiting or self._crowded):
            return await self._send_alone(item)
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if not self._gathering and self._may_send():
            self._gather()
        return await future

    async def _send_alone(self, item: T) -> R:
        self._under_way.append(1)
        try:
            [answer] = await self._send([item])
            return answer
        finally:
            self._done(1)

    def _may_send(self) -> bool:
        """Whether to send now. A second call must not be small compared with the one under way; else it waits."""
        if not self._under_way:
            return True
        return len(self._under_way) < self._calls and 2 * len(self._waiting) >= sum(self._under_way)

    def _gather(self) -> None:
        self._gathering = True
        asyncio.get_running_loop().call_soon(self._send_gathered)

    def _send_gathered(self) -> None:
        self._gathering = False
        while self._waiting and self._may_send():
            size = min(len(self._waiting), self._most)
            if self._calls > 1 and not self._under_way and size >= _MANY:
                size //= 2
            batch = [self._waiting.popleft() for _ in range(size)]
            self._under_way.append(size)
            task = asyncio.get_running_loop().create_task(self._send_batch(batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        wanted = [(item, future) for item, future in batch if not future.done()]
        try:
            answers = await send_isolated(self._send, [item for item, _ in wanted])
        except BaseException as exc:  # noqa: BLE001  # each caller gets it, cancellation of the loop included
            for _, future in wanted:
                if not future.done():
                    future.set_exception(exc)
        else:
            for (_, future), answer in zip(wanted, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Refused):
                    future.set_exception(answer.error)
                else:
                    future.set_result(answer)
        finally:
            self._done(len(batch))

    def _done(self, size: int) -> None:
        self._under_way.remove(size)
        self._crowded = size > 1
        if self._waiting and not self._gathering:
            self._gather()
