"""Sessions: one opened client per event loop and process, opened when it is first needed, closed with its loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from duly.ports import Backend
from duly.ports.waiting import shielded
from duly.scheduler.client import Client
from duly.scheduler.loop_end import LoopEnd


class Sessions:
    """A store's connections belong to one loop; every loop gets its own, and a forked process opens new ones.

    All are sessions of one backend that is itself never opened, so that what lives in memory only is the same for all.
    """

    def __init__(self, root: Callable[[], Backend], client: Callable[[Backend], Client]) -> None:
        self._make_root = root
        self._make_client = client
        self._root: Backend | None = None
        self._process = os.getpid()
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}
        self._latest: tuple[asyncio.AbstractEventLoop, Client] | None = None

    def at_hand(self) -> Client | None:
        """The client of the running loop, if it was the last one used: the fast path of frequent submissions.

        A forked process never runs the loop of its parent.
        """
        latest = self._latest
        return None if latest is None or latest[0] is not asyncio.get_running_loop() else latest[1]

    async def client(self) -> Client:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        session = self._mine().get(loop)
        if session is None:
            session = self._sessions[loop] = Session(self._new_backend(), self._make_client, self._ended)
        try:
            client = await session.opened()
        except BaseException:
            if session.failed and self._sessions.get(loop) is session:
                del self._sessions[loop]
            raise
        if self._sessions.get(loop) is session:
            self._latest = (loop, client)
        return client

    def _new_backend(self) -> Backend:
        if self._root is None:
            self._root = self._make_root()
        return self._root.session()

    def _mine(self) -> dict[asyncio.AbstractEventLoop, Session]:
        """The sessions of this process on loops that are not closed."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._sessions = {}
        for loop in [loop for loop in tuple(self._sessions) if loop.is_closed()]:
            self._sessions.pop(loop, None)
        return self._sessions

    def is_open(self) -> bool:
        """Whether the running loop has a client."""
        session = self._mine().get(asyncio.get_running_loop())
        return session is not None and session.is_open

    async def close(self, patience: float | None = None) -> None:
        """Close the running loop's client, if it has one."""
        session = self._mine().get(asyncio.get_running_loop())
        if session is not None:
            self._ended(session)
            await session.close(patience)

    def abandon(self) -> None:
        """Ask every loop to close its client, without waiting."""
        for loop, session in tuple(self._mine().items()):
            self._ended(session)
            with suppress(RuntimeError):  # it was closed just now
                loop.call_soon_threadsafe(session.close_soon)

    def _ended(self, session: Session) -> None:
        """This session is over: the next caller gets another one."""
        self._latest = None
        if self._sessions.get(session.loop) is session:
            del self._sessions[session.loop]


class Session:
    """The client of one loop, from its first use until it is closed, explicitly or with the loop."""

    def __init__(self, backend: Backend, make: Callable[[Backend], Client], ended: Callable[[Session], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._backend = backend
        self._make = make
        self._ended = ended
        self._end = LoopEnd(self._close_with_loop)
        self._client: Client | None = None
        self._opening = self.loop.create_task(self._open())

    @property
    def is_open(self) -> bool:
        return self._client is not None

    @property
    def failed(self) -> bool:
        """Whether it could not be opened, so that the next caller should try with a new one."""
        return self._opening.done() and self._client is None

    async def opened(self) -> Client:
        """The client; all callers wait for the same attempt to open it."""
        return await shielded(self._opening) if self._client is None else self._client

    async def _open(self) -> Client:
        try:
            await self._backend.open()
            client = self._make(self._backend)
            await self._end.arm()
        except BaseException:
            await self._backend.close()
            raise
        client.clock_reader.start()
        self._client = client
        return client

    async def close(self, patience: float | None = None) -> None:
        """Close what was opened, or stop opening it."""
        await self._end.call_off()
        await self._close(patience)

    def close_soon(self) -> None:
        """The same, for callers that cannot wait."""
        closing = self.loop.create_task(self.close(), name="duly-close")
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    async def _close_with_loop(self) -> None:
        self._ended(self)
        await self._close()

    async def _close(self, patience: float | None = None) -> None:
        client = self._client
        if client is None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
            client = self._client
        if client is not None:
            await (client.close() if patience is None else client.close(patience))


_closing: set[asyncio.Task[None]] = set()  # asyncio itself keeps no tasks alive
