"""Streaming: replies that have no end of their own, from the first byte to the moment that somebody has enough.

A stream ends when its chunks do, when the caller has gone, and when the caller is no longer let in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from typing import Any

from duly.api.calls import Stream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PATIENCE = 60.0  # seconds that a caller may take to read what was sent
_LAST_WORDS = 1.0

_log = logging.getLogger("duly.api")


async def pour(stream: Stream, receive: Receive, send: Send, denied: Callable[[], Awaitable[None]]) -> None:
    """Send what a stream brings, after its head. `denied` returns when the caller may see no more."""
    async with asyncio.TaskGroup() as group:
        pouring = group.create_task(_pour(stream, send))
        leaving = group.create_task(_then(_left(receive), pouring))
        watching = group.create_task(_then(denied(), pouring))
        await asyncio.wait([pouring])
        gone = leaving.done()
        leaving.cancel()
        watching.cancel()
    if not gone:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _pour(stream: Stream, send: Send) -> None:
    try:
        async with aclosing(stream.chunks) as chunks:
            async for chunk in chunks:
                async with asyncio.timeout(_PATIENCE):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except OSError:
        return  # the connection broke, or nobody reads at its other end: the caller may resume
    except Exception:  # noqa: BLE001  # a fault of ours, after the head was sent: all that can be done is to tell
        _log.exception("a stream failed")


async def _left(receive: Receive) -> None:
    """Return when the caller has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _then(first: Awaitable[None], pouring: asyncio.Task[None]) -> None:
    await first
    pouring.cancel()
