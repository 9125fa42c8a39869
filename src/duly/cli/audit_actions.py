"""Deeds: what operators do on the command line is in the audit log like what they do over HTTP."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duly.scheduler import Scheduler


def actor() -> str:
    """Who sits at the command line, as far as the machine knows."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number that has no name
        user = "somebody"
    return f"cli {user}@{socket.gethostname()}"


async def note(scheduler: Scheduler, action: str, target: str, before: Any = None, after: Any = None) -> None:
    """Write it down."""
    client = await scheduler.opened()
    await client.audit.record(actor(), action, target, client.clock.now(), before, after)
