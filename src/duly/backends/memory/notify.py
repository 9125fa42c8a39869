"""Wakes tasks that wait for a change, without losing a notification between two waits."""

from __future__ import annotations

import asyncio
import math


class Notifier:
    """Belongs to one event loop. Each listener remembers how many rings it has heard."""

    def __init__(self) -> None:
        self.rings = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        self.rings += 1
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, heard: int, timeout: float) -> int:
        """Return the number of rings as soon as it differs from `heard`, at the latest after `timeout` seconds."""
        if self.rings == heard and timeout > 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                async with asyncio.timeout(None if timeout == math.inf else timeout):
                    await waiter
            except TimeoutError:
                pass
            finally:
                self._waiters.discard(waiter)
        return self.rings
