"""Sessions: one opened client per event loop and process, opened when it is first needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from weakref import WeakKeyDictionary

from duly.ports import Backend
from duly.scheduler.client import Client


class Sessions:
    """A store's connections belong to one loop; every loop gets its own, and a forked process begins afresh.

    All are sessions of one backend that is itself never opened, so that what lives in memory only is the same for all.
    """

    def __init__(self, root: Callable[[], Backend], client: Callable[[Backend], Client]) -> None:
        self._make_root = root
        self._make_client = client
        self._root: Backend | None = None
        self._process = os.getpid()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Client]] = WeakKeyDictionary()
        self._latest: tuple[asyncio.AbstractEventLoop, Client] | None = None

    def at_hand(self) -> Client | None:
        """The client of the running loop, if it was asked for last: what a submission among thousands finds.

        A forked process never runs the loop of its parent.
        """
        latest = self._latest
        return None if latest is None or latest[0] is not asyncio.get_running_loop() else latest[1]

    async def client(self) -> Client:
        """The client of the running loop."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._clients = WeakKeyDictionary()
        loop = asyncio.get_running_loop()
        opening = self._clients.get(loop)
        if opening is None:
            opening = self._clients[loop] = loop.create_task(self._open())
        elif opening.done() and not opening.cancelled() and opening.exception() is None:
            self._latest = (loop, opening.result())
            return self._latest[1]
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and (opening.cancelled() or opening.exception() is not None):
                self._clients.pop(loop, None)
            raise

    async def _open(self) -> Client:
        if self._root is None:
            self._root = self._make_root()
        backend = self._root.session()
        await backend.open()
        client = self._make_client(backend)
        client.clock_reader.start()
        return client

    def is_open(self) -> bool:
        """Whether the running loop has a client."""
        opening = self._clients.get(asyncio.get_running_loop())
        return self._process == os.getpid() and opening is not None and opening.done()

    async def close(self) -> None:
        """Close the running loop's client, if it has one."""
        self._latest = None
        opening = self._clients.pop(asyncio.get_running_loop(), None)
        if opening is not None and self._process == os.getpid():
            client = await opening
            await client.close()
