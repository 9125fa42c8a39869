"""Sends replies without a fixed end.

A stream ends when its chunks end, when the caller disconnects, or when the caller's access ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

from duly.api.calls import Stream
from duly.api.exchange import Exchange

_SEND_TIMEOUT = 60.0  # seconds that a caller may take to read a chunk
_END_TIMEOUT = 1.0

_log = logging.getLogger("duly.api")


async def send_stream(stream: Stream, exchange: Exchange, access_ended: Callable[[], Awaitable[None]]) -> None:
    """Send the chunks of a stream. `access_ended` returns when the caller may see no more."""
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(_send_chunks(stream, exchange))
        disconnect = group.create_task(_then_cancel(exchange.disconnected(), sending))
        access = group.create_task(_then_cancel(access_ended(), sending))
        await asyncio.wait([sending])
        disconnected = disconnect.done()
        disconnect.cancel()
        access.cancel()
    if not disconnected:
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT):
                await exchange.end()


async def _send_chunks(stream: Stream, exchange: Exchange) -> None:
    try:
        async with aclosing(stream.chunks) as chunks:
            async for chunk in chunks:
                async with asyncio.timeout(_SEND_TIMEOUT):
                    await exchange.send(chunk)
    except OSError:
        return  # the connection broke, or the caller does not read: it may resume
    except Exception:  # noqa: BLE001  # a bug; the head is sent already, so it can only be logged
        _log.exception("a stream failed")


async def _then_cancel(first: Awaitable[None], sending: asyncio.Task[None]) -> None:
    await first
    sending.cancel()
