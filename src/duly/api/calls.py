"""A call as the handler of a route gets it: routed, authorised and checked; and the reply to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from duly.api.config import ApiContext
from duly.api.permissions import Principal
from duly.api.responses import encode

Q = TypeVar("Q")
B = TypeVar("B")

JSON = b"application/json"
COMMON_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Reply(Struct, frozen=True, gc=False):
    """A status, a body and headers."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: Sequence[tuple[bytes, bytes]] = ()


def head_of(reply: Reply) -> list[tuple[bytes, bytes]]:
    """The headers of a reply, including those that all replies have."""
    if reply.status == 204:
        return [*COMMON_HEADERS, *reply.headers]
    size = b"%d" % len(reply.body)
    return [(b"content-type", reply.content_type), (b"content-length", size), *COMMON_HEADERS, *reply.headers]


class Stream(Struct, frozen=True):
    """A reply with status 200 and no fixed end. `close` is called exactly once at its end."""

    chunks: AsyncGenerator[bytes, None]
    close: Callable[[], None]
    content_type: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


def answer(value: object, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
    """A reply with a JSON document."""
    return Reply(status, encode(value), JSON, headers)


class Call(Struct, Generic[Q, B], frozen=True):
    """The arguments of a handler. `name` is the variable segment of the path, or empty."""

    context: ApiContext
    principal: Principal
    name: str
    query: Q
    body: B
    headers: Mapping[bytes, bytes]
    path: str
    root: str = ""

    def header(self, name: bytes) -> str | None:
        """The value of a header, None if it is missing."""
        found = self.headers.get(name)
        return None if found is None else found.decode("latin-1")

    def location(self, path: str) -> tuple[bytes, bytes]:
        """The `Location` header of a new resource."""
        return (b"location", f"{self.root}{path}".encode())

    async def record(self, action: str, target: str, before: object = None, after: object = None) -> None:
        """Record an action of the caller in the audit log."""
        plain = msgspec.to_builtins
        await self.context.record(self.principal.name, action, target, plain(before), plain(after))
