"""An exchange with an ASGI server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from duly.api.calls import Reply, head_of
from duly.api.exchange import Disconnected, Exchange, Headers, too_large

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AsgiExchange(Exchange):
    """One call of an ASGI application with a scope of type `http`."""

    __slots__ = ("_receive", "_send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get("root_path", "")
        super().__init__(
            scope["method"], scope["path"], scope["query_string"], scope["headers"], scope.get("client"), root
        )
        self._receive = receive
        self._send = send

    async def body(self, most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > most:
                raise too_large(most)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def reply(self, reply: Reply) -> None:
        """Send a complete response."""
        headers = head_of(reply)
        await self._send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else reply.body})

    async def begin(self, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(headers)})

    async def send(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
