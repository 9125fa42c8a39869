"""Namesakes: two processes with one node id, and the leftover announcement of a process that is gone.

A node that was killed stays announced until its presence expires. A process that starts with its id must distinguish
that from a process that is alive.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.model import Node
from duly.rules.describe import instant

_SLACK = timedelta(seconds=2)  # the clock and the start times of processes come from different sources


def is_other(announced: Node, mine: Node) -> bool:
    """Whether the announcement under my id is by another process, or by an earlier start of mine."""
    return announced.id == mine.id and announced.started_at != mine.started_at


def surely_lives(announced: Node, mine: Node, process_began: datetime | None) -> bool:
    """Whether another process with my id is known to be alive, so that mine must not start.

    `process_began` is when the process with its pid on this machine started, None if there is none. On another
    machine, or in a container with the same host name, that cannot be known from here: then its heartbeats show it.
    """
    if (announced.host, announced.pid == mine.pid) != (mine.host, False) or process_began is None:
        return False
    return process_began <= announced.started_at + _SLACK


def describe(other: Node) -> str:
    """Another process with the same id, in words."""
    return f"process {other.pid} on {other.host}, started at {instant(other.started_at)}"
