"""A backend put together: a store that is the truth, and a coordinator of its own.

The store's own coordinator is not used then. What the parts promise is what the store promises: losing the coordinator
costs time, never safety, since a leader's epoch is installed in the store before it writes.
"""

from __future__ import annotations

import asyncio
from typing import Self

from duly.ports import Backend, Capabilities, Coordinator, Finding, Queue, Seat, Store


class SplitBackend:
    """One session on all parts."""

    capabilities: Capabilities
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(self, truth: Backend, seat: Seat | None = None) -> None:
        self.url = truth.url if seat is None else f"{truth.url} + {seat.url}"
        self._truth = truth
        self._seat = seat or truth
        self.capabilities = truth.capabilities
        self.store = truth.store
        self.queue = truth.queue
        self.coordinator = self._seat.coordinator

    async def open(self) -> None:
        try:
            await self._truth.open()
            await self._seat.open()
        except BaseException:
            await self.close()
            raise
        self.capabilities = self._truth.capabilities

    async def close(self) -> None:
        await asyncio.gather(self._seat.close(), self._truth.close())

    def session(self) -> Self:
        return type(self)(self._truth.session(), self._seat.session())

    async def examine(self) -> list[Finding]:
        return [*await self._truth.examine(), *await self._seat.examine()]

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
