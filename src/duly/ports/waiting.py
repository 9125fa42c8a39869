"""Waiting for work that goes on when the waiter is cancelled, and whose failure then concerns nobody."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


async def shielded(work: asyncio.Future[T]) -> T:
    """The result of some work. Cancelling the waiter neither cancels the work nor leaves a failure unnoticed.

    `asyncio.shield` alone would report such a failure later as "exception was never retrieved".
    """
    work.add_done_callback(noticed)
    return await asyncio.shield(work)


def noticed(work: asyncio.Future[Any]) -> None:
    """A callback for finished work: whatever became of it, asyncio need not complain that nobody looked."""
    if not work.cancelled():
        work.exception()
