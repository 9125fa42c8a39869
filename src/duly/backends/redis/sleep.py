"""Sleeping until there may be work: pushed by the server, asked for once per sleep, never polled.

A node that goes to sleep tells the server which ring it has heard last. If there was one since, it does not sleep; if
not, the next ring is published. Nothing is published to nodes that are awake.
"""

from __future__ import annotations

import asyncio

from duly.backends.redis.bell import Ear
from duly.backends.redis.wire import Wire

CHANNEL = "work"
LEASES = "leases"  # somebody else's rings, which may mean that leadership is free


class Sleep:
    """The sleep of one session, which has one listener."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ear: Ear | None = None
        self._heard = -1

    async def until_rung(self, timeout: float) -> None:
        """Return when there was a ring since the last one heard, at the latest after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        ear = await self._listening()
        rings = await self._wire.call("doze", self._heard)
        if rings != self._heard:
            self._heard = rings
            return
        for word in await ear.wait(deadline - loop.time()):
            if word.isdigit():
                self._heard = int(word)

    async def _listening(self) -> Ear:
        if self._ear is None:
            ear = self._wire.ear(CHANNEL, LEASES)
            await ear.open()
            self._ear = ear
        return self._ear
