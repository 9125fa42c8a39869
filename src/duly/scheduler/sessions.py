"""Sessions: one opened client per event loop and process, opened when it is first needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from duly.scheduler.client import Client


class Sessions:
    """A store's connections belong to one loop; every loop gets its own, and a forked process begins afresh."""

    def __init__(self, open_client: Callable[[], Awaitable[Client]]) -> None:
        self._open_client = open_client
        self._process = os.getpid()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Client]] = WeakKeyDictionary()

    async def client(self) -> Client:
        """The client of the running loop."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._clients = WeakKeyDictionary()
        loop = asyncio.get_running_loop()
        opening = self._clients.get(loop)
        if opening is None:
            opening = self._clients[loop] = loop.create_task(self._open())
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and (opening.cancelled() or opening.exception() is not None):
                self._clients.pop(loop, None)
            raise

    async def _open(self) -> Client:
        return await self._open_client()

    def is_open(self) -> bool:
        """Whether the running loop has a client."""
        opening = self._clients.get(asyncio.get_running_loop())
        return self._process == os.getpid() and opening is not None and opening.done()

    async def close(self) -> None:
        """Close the running loop's client, if it has one."""
        opening = self._clients.pop(asyncio.get_running_loop(), None)
        if opening is not None and self._process == os.getpid():
            client = await opening
            await client.backend.close()
