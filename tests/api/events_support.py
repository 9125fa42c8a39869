"""Somebody who follows events: a stream of the API as its reader sees it, without a network."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Message:
    """One server-sent event; a comment has no kind."""

    id: int | None
    kind: str | None
    data: Any


class Follower:
    """Calls `GET /events` and reads what comes. `gate` is closed while it does not read."""

    def __init__(self, caller, target="/events", method="GET", **headers):
        path, _, query = target.partition("?")
        sent = {"host": "localhost", "authorization": f"Bearer {caller.token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }
        self._api = caller.api
        self._left = asyncio.Event()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._text = b""
        self._head = asyncio.get_running_loop().create_future()
        self.gate = asyncio.Event()
        self.gate.set()
        self.comments: list[bytes] = []
        self.last_id: int | None = None

    async def __aenter__(self):
        self.task = asyncio.create_task(self._run())
        async with asyncio.timeout(30):
            head = await self._head
        self.status = head["status"]
        self.headers = {name.decode(): value.decode() for name, value in head["headers"]}
        return self

    async def __aexit__(self, *exc):
        await self.leave()

    async def leave(self):
        """Hang up."""
        self._left.set()
        self.gate.set()
        async with asyncio.timeout(30):
            await self.task

    async def _run(self):
        asked = False

        async def receive():
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            await self.gate.wait()
            if message["type"] == "http.response.start":
                self._head.set_result(message)
            else:
                self._parts.put_nowait(message["body"] if message.get("more_body") else message["body"] or None)

        try:
            await self._api(self._scope, receive, send)
        finally:
            self._parts.put_nowait(None)

    async def body(self) -> bytes:
        """All of it, up to its end."""
        while (part := await asyncio.wait_for(self._parts.get(), 30)) is not None:
            self._text += part
        return self._text

    async def next(self) -> Message | None:
        """The next message; None where the stream has ended."""
        while True:
            while b"\n\n" not in self._text:
                part = await asyncio.wait_for(self._parts.get(), 30)
                if part is None:
                    return None
                self._text += part
            block, _, self._text = self._text.partition(b"\n\n")
            message = self._message(block)
            if message is not None:
                return message

    def _message(self, block: bytes) -> Message | None:
        fields = {}
        for text in block.decode().split("\n"):
            name, _, value = text.partition(": ")
            if text.startswith(":"):
                self.comments.append(block)
            else:
                fields[name] = value
        if "id" in fields:
            self.last_id = int(fields["id"])
        if "data" not in fields:
            assert fields.keys() <= {"retry", "id"}
            return None
        return Message(self.last_id, fields["event"], json.loads(fields["data"]))

    async def some(self, number: int) -> list[Message]:
        return [await self.next() for _ in range(number)]
