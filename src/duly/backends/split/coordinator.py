"""The coordinator of a split backend: the one of another server, opened late if that is away at the start.

Losing it costs time, never safety: a process that only submits or works can start without it.
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
    """All verbs not defined here are the other coordinator's. `on_release` is called after leases were released."""

    def __init__(self, session: CoordinatorSession, on_release: Callable[[], Awaitable[None]] | None) -> None:
        self._session = session
        self._on_release = on_release
        self._wanted = False
        self._open = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Open the session if it can be reached now; if not, the next call tries again."""
        self._wanted = True
        with suppress(BackendUnavailable):
            await self._ready()

    async def close(self) -> None:
        self._wanted = self._open = False
        await self._session.close()

    async def _ready(self) -> None:
        """Make sure that the session is open. After `close` it stays closed, and its own calls raise."""
        async with self._opening:
            if self._wanted and not self._open:
                await self._session.open()
                self._open = True

    def __getattr__(self, verb: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            try:
                await self._ready()
                return await getattr(self._session.coordinator, verb)(*arguments, **named)
            except BackendUnavailable as exc:
                raise BackendUnavailable(str(exc), PART) from exc

        return call

    async def watch(self, key: str) -> AsyncIterator[Item]:
        await self._ready()
        async for item in self._session.coordinator.watch(key):
            yield item

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._ready()
        await self._session.coordinator.release(leases)
        if leases and self._on_release is not None:
            await self._on_release()
