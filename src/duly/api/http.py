"""HTTP: uvicorn as this service uses it, on sockets of ours, without its signals, its logs and its idea of life.

Old clients that ask for it keep their connection under HTTP/1.0 as well; ApacheBench is one, and a connection per call
costs a server twice as much as the call.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from duly.errors import MissingExtra

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as exc:
    raise MissingExtra("serving the API", "server") from exc

if TYPE_CHECKING:
    from duly.api.app import Api

_KEEP_ALIVE = 75  # seconds; longer than the load balancers of the clouds, which close first
_LAST_CALLS = 10  # how many seconds calls under way may take at the end
_KEPT = (b"connection", b"keep-alive")


class _Protocol(HttpToolsProtocol):
    """One connection."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0" and self.parser.should_keep_alive():
            self.cycle.keep_alive = True
            self.cycle.default_headers = [*self.cycle.default_headers, _KEPT]


class HttpServer(uvicorn.Server):
    """Serves an application until `should_exit` is set. `is_up` when its sockets are listened to."""

    def __init__(self, api: Api, tls_cert: str | None, tls_key: str | None) -> None:
        self.is_up = asyncio.Event()
        options: dict[str, Any] = {
            "http": _Protocol,
            "ws": "none",
            "lifespan": "off",
            "log_config": None,
            "log_level": "warning",
            "access_log": False,
            "proxy_headers": False,
            "server_header": False,
            "timeout_keep_alive": _KEEP_ALIVE,
            "timeout_graceful_shutdown": _LAST_CALLS,
            "ssl_certfile": tls_cert,
            "ssl_keyfile": tls_key,
        }
        super().__init__(uvicorn.Config(api, **options))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's own business."""
        yield
