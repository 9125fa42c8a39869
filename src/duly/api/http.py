"""The HTTP server: connections of our own application on sockets that we open."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import format_datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from duly.api.addresses import BACKLOG
from duly.api.config import ConnectionLimits
from duly.api.connections import Connection
from duly.ports import StoreClock

if TYPE_CHECKING:
    from duly.api.app import Api

_SWEEP = 0.5  # seconds between checks of timeouts
_POLL = 0.05
_LAST_CALLS = 10.0  # seconds that calls in progress may take at shutdown
_LAST_SECONDS = 0.6  # this long before the process must exit, calls in progress are cut off
_OTHER_FILES = 100  # file descriptors reserved for the store, logs and handlers
_MOST_HANDSHAKES = 200

_log = logging.getLogger("duly.api")


class HttpServer:
    """Serves an application between `start` and `stop`. Belongs to one event loop."""

    def __init__(self, api: Api, limits: ConnectionLimits, tls: ssl.SSLContext | None) -> None:
        self.api = api
        self.limits = within_open_files(limits)
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.date = b""  # the line of every response
        self._tls = tls
        self._sockets: Sequence[socket.socket] = ()
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._last_tasks: set[asyncio.Task[None]] = set()  # of connections that are lost
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on these sockets."""
        self._sockets = sockets
        self._sweep((await self.api.context.client()).clock)
        for sock in sockets:
            if self._tls is None:
                self._listeners.append(await self.loop.create_server(self._connection, sock=sock, backlog=BACKLOG))
            else:
                self._listeners.append(TlsListener(sock, self._tls, self._connection, self.limits.header_timeout))

    def _connection(self) -> Connection:
        return Connection(self)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep the task of a lost connection until it ends."""
        self._last_tasks.add(task)
        task.add_done_callback(self._last_tasks.discard)

    def _sweep(self, clock: StoreClock) -> None:
        self.date = f"date: {format_datetime(clock.now(), usegmt=True)}\r\n".encode()
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        self._sweeping = self.loop.call_later(_SWEEP, self._sweep, clock)

    async def stop(self, left: Callable[[], float | None]) -> None:
        """Accept no more connections, and let calls in progress end; `left` is the time until the process exits."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.shutdown()
        until = self.loop.time() + _LAST_CALLS
        while (self.connections or self._last_tasks) and self.loop.time() < until:
            remaining = left()
            if remaining is not None and remaining < _LAST_SECONDS:
                break
            await asyncio.sleep(_POLL)
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._cut_off()
        for listener in self._listeners:
            if isinstance(listener, TlsListener):
                await listener.wait_closed()
        for sock in self._sockets:
            sock.close()

    async def _cut_off(self) -> None:
        """End what is still in progress."""
        tasks = {*self._last_tasks, *(task for each in self.connections if (task := each.task) is not None)}
        for connection in list(self.connections):
            connection.cut()
        for task in tasks:
            task.cancel()
        if tasks:
            _log.warning("%d calls did not end in time and were cut off", len(tasks))
            await asyncio.wait(tasks, timeout=_POLL)


def within_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """Reduce `max_connections` to what the process's limit of open files allows."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = max(1, most - _OTHER_FILES)
    if most == resource.RLIM_INFINITY or limits.max_connections <= room:
        return limits
    _log.warning(
        "max_connections=%d exceeds the limit of open files: serving %d at a time; raise `ulimit -n` (%d)",
        limits.max_connections,
        room,
        most,
    )
    return replace(limits, max_connections=room)


class TlsListener:
    """Accepts connections and performs their TLS handshakes, with a limit on their number and their duration.

    asyncio's own server has no limit for handshakes: any number of clients could begin one and never finish it. Here
    the oldest handshake is cancelled for a new one.
    """

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol], timeout: float
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._protocol = protocol
        self._timeout = timeout
        self._handshakes: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._sock.setblocking(False)
        self._sock.listen(BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="duly-tls")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as exc:  # too many open files, or the client disconnected
                _log.warning("a connection cannot be accepted: %s", exc.strerror)
                await asyncio.sleep(_SWEEP)
                continue
            if len(self._handshakes) >= _MOST_HANDSHAKES:
                next(iter(self._handshakes)).cancel()
            handshake = loop.create_task(self._handshake(sock))
            self._handshakes[handshake] = None
            handshake.add_done_callback(partial(self._handshake_done, sock))

    async def _handshake(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, sock, ssl=self._tls, ssl_handshake_timeout=self._timeout)
        except OSError:  # not TLS, too slow, or disconnected
            sock.close()

    def _handshake_done(self, sock: socket.socket, handshake: asyncio.Task[None]) -> None:
        self._handshakes.pop(handshake, None)
        if handshake.cancelled():  # for a newer one, perhaps before it began
            sock.close()

    def close(self) -> None:
        """Stop accepting connections, like `asyncio.Server.close`."""
        self._accepting.cancel()
        for handshake in list(self._handshakes):
            handshake.cancel()

    async def wait_closed(self) -> None:
        with suppress(asyncio.CancelledError):
            await self._accepting
