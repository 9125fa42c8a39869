"""HTTP: uvicorn as this service uses it, on sockets of ours, without its signals, its logs and its idea of life."""

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

from duly.api.connections import SWEEP, Connection, ConnectionLimits
from duly.errors import MissingExtra

try:
    import uvicorn
except ImportError as exc:
    raise MissingExtra("serving the API", "server") from exc

if TYPE_CHECKING:
    from duly.api.app import Api

_LAST_CALLS = 10  # how many seconds calls under way may take at the end
_TICKS = round(SWEEP / 0.1)  # uvicorn's own period
_OTHER_FILES = 100  # descriptors that are kept for the store, logs and handlers
_MOST_HANDSHAKES = 200

_log = logging.getLogger("duly.api")


class HttpServer(uvicorn.Server):
    """Serves an application until `should_exit` is set. `is_up` when its sockets are listened to."""

    def __init__(self, api: Api, limits: ConnectionLimits, tls: ssl.SSLContext | None) -> None:
        self.is_up = asyncio.Event()
        self._tls = tls
        self._limits = affordable(limits)
        self._connection: type[Connection] = type("Connection", (Connection,), {"limits": self._limits})
        options: dict[str, Any] = {
            "http": self._connection,
            "ws": "none",
            "lifespan": "off",
            "log_config": None,
            "log_level": "error",  # a warning per malformed request would let anybody fill the logs
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

        patience = self._limits.header_timeout
        self.servers: list[Any] = [TlsListener(sock, tls, connection, patience) for sock in sockets]
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
        """Signals are the process's own business."""
        yield


def affordable(limits: ConnectionLimits) -> ConnectionLimits:
    """As many connections as the process may have open files, less those that it needs itself."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = max(1, most - _OTHER_FILES)
    if most == resource.RLIM_INFINITY or limits.max_connections <= room:
        return limits
    _log.warning(
        "max_connections=%d is more than this process can have open: serving %d at a time; raise `ulimit -n` (%d)",
        limits.max_connections,
        room,
        most,
    )
    return replace(limits, max_connections=room)


class TlsListener:
    """Accepts connections and lets them shake hands, a bounded number at a time and for a bounded time.

    asyncio's own server tells nobody of a connection before its handshake has ended: any number of clients could begin
    one and leave it at that. Here the oldest handshake gives way to a new one.
    """

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol], patience: float
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._protocol = protocol
        self._patience = patience
        self._handshakes: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._sock.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="duly-tls")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except OSError as exc:  # too many open files, or the client has gone already
                _log.warning("a connection cannot be accepted: %s", exc.strerror)
                await asyncio.sleep(SWEEP)
                continue
            if len(self._handshakes) >= _MOST_HANDSHAKES:
                next(iter(self._handshakes)).cancel()
            shaking = loop.create_task(self._shake(sock))
            self._handshakes[shaking] = None
            shaking.add_done_callback(partial(self._shaken, sock))

    async def _shake(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._protocol, sock, ssl=self._tls, ssl_handshake_timeout=self._patience
            )
        except OSError:  # no TLS, too slow, or gone
            sock.close()

    def _shaken(self, sock: socket.socket, shaking: asyncio.Task[None]) -> None:
        self._handshakes.pop(shaking, None)
        if shaking.cancelled():  # it had to give way, maybe before it began
            sock.close()

    def close(self) -> None:
        """Accept no more; called once, as of an asyncio server."""
        self._accepting.cancel()
        for shaking in list(self._handshakes):
            shaking.cancel()

    async def wait_closed(self) -> None:
        with suppress(asyncio.CancelledError):
            await self._accepting
