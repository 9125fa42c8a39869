"""A lane: one connection at a time, made when it is needed, shared by all who call on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from duly.backends.redis.connection import Connection
from duly.backends.redis.discovery import Discovery
from duly.backends.redis.url import Place
from duly.errors import BackendUnavailable

_MOST_MOVES = 5


class ReconnectingConnection:
    """`meet` looks at each new connection before anybody else may use it; False sends us to look elsewhere."""

    def __init__(self, finder: Discovery, place: Place, meet: Callable[[Connection], Awaitable[bool]]) -> None:
        self.live: Connection | None = None
        self._finder = finder
        self._place = place
        self._meet = meet
        self._connecting = asyncio.Lock()
        self._over = False

    async def connection(self) -> Connection:
        """The connection, made anew if there is none. Whoever comes meanwhile waits for the same attempt."""
        if self.live is not None:
            return self.live
        async with self._connecting:
            if self.live is None:
                self.live = await self._new()
            return self.live

    async def _new(self) -> Connection:
        for _ in range(_MOST_MOVES):
            made = await self._finder.connect(self._made)
            try:
                met = await self._meet(made)
            except BaseException as exc:
                made.drop(exc)
                raise
            if self._over or not met:
                await made.close()
            if made.closed and met:
                raise BackendUnavailable(f"{self._place.shown} closed the connection")
            if met:
                return made
        raise BackendUnavailable(f"{self._place.shown} is a cluster whose nodes send us from one to another")

    def _made(self) -> Connection:
        return Connection(self._place.shown, self._place.timeout, self._lost)

    def _lost(self, connection: Connection) -> None:
        if self.live is connection:
            self.live = None

    def drop(self, why: str) -> None:
        """Give the connection up; the next call makes another one."""
        if self.live is not None:
            self.live.drop(ConnectionError(why))

    async def close(self) -> None:
        self._over = True
        if self.live is not None:
            await self.live.close()
