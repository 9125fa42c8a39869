"""Waiting for work that continues when the waiter is cancelled, and whose failure is then ignored."""

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
    """A callback for finished work: retrieves its exception, so that asyncio does not log it as never retrieved."""
    if not work.cancelled():
        work.exception()
