"""Sleeping until there may be work: pushed by the server, asked for once per sleep, never polled.

A node that goes to sleep tells the server which ring it has heard last. If there was one since, it does not sleep; if
not, the next ring is published. Nothing is published to nodes that are awake. A claim that finds no more work tells it
along the way; whoever wants to sleep meanwhile waits for its answer instead of asking beside it.
"""

from __future__ import annotations

import asyncio

from duly.backends.redis.client import RedisClient
from duly.backends.redis.notify import MANY, Ear

CHANNEL = "work"
LEASES = "leases"  # somebody else's rings, which may mean that leadership is free


class Wakeup:
    """The sleep of one session, which has one listener and one worker."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._ear: Ear | None = None
        self._heard = -1
        self._noted = False  # the server knows that we sleep
        self._claiming: asyncio.Future[None] | None = None

    async def until_rung(self, timeout: float) -> None:
        """Return when there was a ring since the last one heard, at the latest after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        ear = await self._listening()
        if self._claiming is not None:  # this one, not all that may follow it
            await asyncio.shield(self._claiming)
        if not self._noted:
            rings = await self._client.call("doze", self._heard)
            if rings != self._heard:
                self._heard = rings
                return
        said = await ear.wait(deadline - loop.time())
        self._noted = False
        for word in said:
            if word.isdigit():
                self._heard = int(word)

    # --- what a claim says of it

    def claim(self) -> bytes | int:
        """A claim is about to be sent: the ring heard last, if somebody listens."""
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_future()
        return b"" if self._ear is None else self._heard

    def claimed(self, rings: bytes | int) -> None:
        """The claim was answered with the bell as it is, or nothing: it found as much as it wanted, or failed."""
        claiming, self._claiming = self._claiming, None
        if claiming is not None and not claiming.done():
            claiming.set_result(None)
        if isinstance(rings, int) and rings >= self._heard:
            self._noted = rings == self._heard
            if not self._noted and self._ear is not None:
                self._heard = rings
                self._ear.ring(MANY)

    async def _listening(self) -> Ear:
        if self._ear is None:
            ear = self._client.ear(CHANNEL, LEASES)
            await ear.open()
            self._ear = ear
        return self._ear
