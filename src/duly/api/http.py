"""The HTTP server: uvicorn on sockets that we open, without its signal handlers, its logs and its lifespan."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from duly.api.config import ConnectionLimits
from duly.api.connections import SWEEP, Connection
from duly.errors import MissingExtra

try:
    import uvicorn
except ImportError as exc:
    raise MissingExtra("serving the API", "server") from exc

if TYPE_CHECKING:
    from duly.api.app import Api

_LAST_CALLS = 10  # seconds that calls in progress may take at shutdown
_TICKS = round(SWEEP / 0.1)  # uvicorn ticks every 0.1 s
_OTHER_FILES = 100  # file descriptors reserved for the store, logs and handlers
_MOST_HANDSHAKES = 200

_log = logging.getLogger("duly.api")


class HttpServer(uvicorn.Server):
    """Serves an application until `should_exit` is set. `is_up` is set when it listens."""

    def __init__(self, api: Api, limits: ConnectionLimits, tls: ssl.SSLContext | None) -> None:
        self.is_up = asyncio.Event()
        self._tls = tls
        self._limits = within_open_files(limits)
        self._connection: type[Connection] = type("Connection", (Connection,), {"limits": self._limits})
        options: dict[str, Any] = {
            "http": self._connection,
            "ws": "none",
            "lifespan": "off",
            "log_config": None,
            "log_level": "error",  # a warning per malformed request would let any client fill the logs
            "access_log": False,
            "proxy_headers": False,
            "server_header": False,
            "timeout_keep_alive": self._limits.idle_timeout,
            "timeout_graceful_shutdown": _LAST_CALLS,
        }
        super().__init__(uvicorn.Config(api, **options))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            if self._tls is None:
                await super().startup(sockets)
            else:
                self._start_tls(sockets or [], self._tls)
        finally:
            self.is_up.set()

    def _start_tls(self, sockets: list[socket.socket], tls: ssl.SSLContext) -> None:
        def connection() -> asyncio.Protocol:
            return self._connection(config=self.config, server_state=self.server_state, app_state={})

        timeout = self._limits.header_timeout
        self.servers: list[Any] = [TlsListener(sock, tls, connection, timeout) for sock in sockets]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.sweep(now)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not install signal handlers: the process has its own."""
        yield


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
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="duly-tls")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as exc:  # too many open files, or the client disconnected
                _log.warning("a connection cannot be accepted: %s", exc.strerror)
                await asyncio.sleep(SWEEP)
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
