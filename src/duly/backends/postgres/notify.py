"""Notifications: one listening connection per session, opened at the first wait and shared by all waiting tasks.

A notification is a hint. What was sent while the connection was broken is lost; then all waiting tasks are woken once.
The tasks that wait also restore the connection; there is no background task. Behind a pooler that shares connections,
listening is impossible, and a wait ends after a short time instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable

from duly.backends.postgres.connection import Connection, Connections
from duly.backends.postgres.errors import FOREIGN, translated
from duly.backends.sql import notify
from duly.backends.sql.notify import KINDS
from duly.errors import BackendError, BackendUnavailable

POLL = 0.5  # seconds between polls where listening is impossible
_SILENCE = 30.0  # seconds without a message after which the connection is checked
_SHORTEST_PAUSE = 0.01


class Notifier(notify.Notifier):
    """One session's notifier, on the session's loop."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self._connection: Connection | None = None
        self._mending = asyncio.Lock()
        self._heard_at = 0.0
        self._over = True

    def open(self) -> None:
        """Be ready to listen, on the loop that runs now."""
        self._mending = asyncio.Lock()
        self._over = False

    async def listen(self) -> bool:
        self._connections.check()
        if self._connection is not None or self._connections.pooled:
            return False
        async with self._mending:
            began = self._connection is None
            if began:
                await self._connect()
            return began

    async def wait(self, kind: int, heard: int, timeout: float) -> int:
        """As declared. While the server is away this continues to wait, and listens again as soon as it can.

        Behind a pooler it returns early.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self.rings[kind] == heard and (left := deadline - loop.time()) > 0:
            if self._over:
                raise BackendError("this session was closed while something was waited for")
            if self._connections.pooled:
                await self._sleep(kind, min(left, POLL))
                break
            if self._connection is None:
                await self._sleep(kind, await self._mended(left))
            elif (silent := loop.time() - self._heard_at) < _SILENCE:
                await self._sleep(kind, min(left, _SILENCE - silent))
            else:
                await self._ask_for_life()
        return self.rings[kind]

    async def _mended(self, left: float) -> float:
        """Try to restore the connection; returns how long to sleep: 0, or until the next attempt is allowed."""
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                await self.listen()
        except TimeoutError:
            return 0.0
        except BackendUnavailable:
            return min(left, max(self._connections.pause, _SHORTEST_PAUSE))
        return 0.0

    async def _connect(self) -> None:
        connection = await self._connections.connect()
        if self._connections.pooled:  # detected only now
            connection.terminate()
            return
        connection.add_termination_listener(self._lost)
        await self._said(connection, connection.add_listener(self._connections.texts.channel, self._heard))
        if self._over:
            connection.terminate()
            raise BackendError("this session was closed while something was waited for")
        self._connection = connection
        self.ring(sum(KINDS))

    async def _ask_for_life(self) -> None:
        """Silence is normal: only an unanswered query shows that the connection is dead."""
        async with self._mending:
            if self._connection is not None:
                with contextlib.suppress(BackendUnavailable):  # then the next task that waits restores it
                    await self._said(self._connection, self._connection.execute("SELECT 1"))

    async def _said(self, connection: Connection, answer: Awaitable[object]) -> None:
        """Wait for an answer under the deadline; without one the connection is dropped."""
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._connections.place.timeout, connection.terminate)
        try:
            await answer
        except BaseException as exc:
            connection.terminate()
            self._lost(connection)  # at once: the next task must not find it
            if isinstance(exc, FOREIGN):
                raise translated(exc, self._connections.place.shown) from exc
            raise
        finally:
            late.cancel()
        self._heard_at = loop.time()

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        said = str(payload)
        self.ring(int(said) if said.isdecimal() else sum(KINDS))

    def _lost(self, connection: object) -> None:
        """Wake the waiting tasks: they restore it."""
        if connection is self._connection:
            self._connection = None
            for kind in KINDS:
                self._wake(kind)

    def close(self) -> None:
        """End all waiting."""
        self._over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.hang_up(connection)
        for kind in KINDS:
            self._wake(kind)
