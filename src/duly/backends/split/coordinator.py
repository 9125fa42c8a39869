"""The coordinator of a backend that is put together: the seat's own, opened late if it was away at the start.

Losing it costs time, never safety, so who only submits or works does not need it to begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from duly.errors import BackendUnavailable
from duly.model import Item, Lease
from duly.ports import CoordinatorSession

PART = "coordinator"


class SplitCoordinator:
    """Whatever is not said here is done by the seat's coordinator as it is. `freed` is told of rights given back."""

    def __init__(self, seat: CoordinatorSession, freed: Callable[[], Awaitable[None]] | None) -> None:
        self._seat = seat
        self._freed = freed
        self._wanted = False
        self._open = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Open the seat if it can be reached now; if not, the next call tries again."""
        self._wanted = True
        with suppress(BackendUnavailable):
            await self._ready()

    async def close(self) -> None:
        self._wanted = self._open = False
        await self._seat.close()

    async def _ready(self) -> None:
        """Have the seat open. One that nobody wants open speaks for itself."""
        async with self._opening:
            if self._wanted and not self._open:
                await self._seat.open()
                self._open = True

    def __getattr__(self, verb: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            try:
                await self._ready()
                return await getattr(self._seat.coordinator, verb)(*arguments, **named)
            except BackendUnavailable as exc:
                raise BackendUnavailable(str(exc), PART) from exc

        return call

    async def watch(self, key: str) -> AsyncIterator[Item]:
        await self._ready()
        async for item in self._seat.coordinator.watch(key):
            yield item

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._ready()
        await self._seat.coordinator.release(leases)
        if leases and self._freed is not None:
            await self._freed()
