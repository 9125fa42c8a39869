"""What a program does when `duly copy` has moved its store: go on with the new one, or end with the reason.

It goes on if the environment variable `DULY_FOLLOW` is 1. The new address has no credentials: those of the present
address are used if both are of the same kind, otherwise the new store must not need any.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from duly.errors import ImportUnfinished, StoreMoved

if TYPE_CHECKING:
    from duly.scheduler.scheduler import Scheduler

_log = logging.getLogger("duly.node")

FOLLOW = "DULY_FOLLOW"
_YES = frozenset({"1", "true", "yes", "on"})
_SEVERAL = " + "  # between the parts of an address
_LOOK = 0.2
_PATIENCE = 120.0


async def store_moved(running: Awaitable[None]) -> StoreMoved | None:
    """Wait for the end of a node; the error if it ended because its store has moved."""
    try:
        await running
    except StoreMoved as moved:
        return moved
    return None


def follow(scheduler: Scheduler, moved: StoreMoved) -> None:
    """Bind the stopped scheduler to the new address; raises the error if it shall not, or cannot, follow."""
    if os.environ.get(FOLLOW, "").lower() not in _YES or not moved.address or _SEVERAL in moved.address:
        raise moved
    _log.warning("%s: following, because %s is set", moved, FOLLOW)
    scheduler.follow(moved.address)


async def started_after_move(scheduler: Scheduler) -> None:
    """Start at the new address. The copy opens it a moment after the old one was marked."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        try:
            await scheduler.start()
        except ImportUnfinished:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_LOOK)
        else:
            return
