"""A request and the way to answer it, as the application sees both.

The application knows neither ASGI nor sockets: `AsgiExchange` connects it to any ASGI server, `connections` to ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.api.problems import Problem

Headers = Sequence[tuple[bytes, bytes]]


class Disconnected(Exception):
    """The caller disconnected before the request was complete."""


class Exchange:
    """The head of a request. `path` includes `root`, the path at which the application is mounted."""

    __slots__ = ("client", "method", "pairs", "path", "query", "root")

    def __init__(self, method: str, path: str, query: bytes, pairs: Headers, client: Any, root: str = "") -> None:
        self.method = method
        self.path = path
        self.query = query
        self.pairs = pairs  # the headers, with names in lower case
        self.client = client
        self.root = root

    async def body(self, most: int) -> bytes:
        """The complete body; raises `Disconnected` if it does not arrive, and a `Problem` if it is too large."""
        raise NotImplementedError

    async def begin(self, headers: Headers) -> None:
        """Send the head of a response with status 200 and no fixed end."""
        raise NotImplementedError

    async def send(self, chunk: bytes) -> None:
        """Send a part of that response. Waits while the caller does not read."""
        raise NotImplementedError

    async def end(self) -> None:
        """End that response."""
        raise NotImplementedError

    async def disconnected(self) -> None:
        """Return when the caller has disconnected."""
        raise NotImplementedError


def too_large(most: int) -> Problem:
    detail = f"the body is larger than {most} bytes: split it into several calls, or send a reference to the data"
    return Problem(413, "too-large", detail, headers=((b"connection", b"close"),))
