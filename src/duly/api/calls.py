"""Calls: one request as a route's handler sees it, already routed, authorised and checked; and its reply."""

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


class Reply(Struct, frozen=True, gc=False):
    """A status, a body and what is worth saying in headers."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: Sequence[tuple[bytes, bytes]] = ()


class Stream(Struct, frozen=True):
    """A reply with status 200 that goes on until somebody ends it; `close` is called once, whatever becomes of it."""

    chunks: AsyncGenerator[bytes, None]
    close: Callable[[], None]
    content_type: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


def answer(value: object, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
    """A reply with a document."""
    return Reply(status, encode(value), JSON, headers)


class Call(Struct, Generic[Q, B], frozen=True):
    """What a handler needs to know. `name` is the variable part of the path, empty where there is none."""

    context: ApiContext
    principal: Principal
    name: str
    query: Q
    body: B
    headers: Mapping[bytes, bytes]
    path: str
    root: str = ""

    def header(self, name: bytes) -> str | None:
        """A header's value, None if it is not there."""
        found = self.headers.get(name)
        return None if found is None else found.decode("latin-1")

    def location(self, path: str) -> tuple[bytes, bytes]:
        """The header that says where what was made can be found."""
        return (b"location", f"{self.root}{path}".encode())

    async def note(self, action: str, target: str, before: object = None, after: object = None) -> None:
        """Write down in the audit log what the caller has done."""
        plain = msgspec.to_builtins
        await self.context.record(self.principal.name, action, target, plain(before), plain(after))
