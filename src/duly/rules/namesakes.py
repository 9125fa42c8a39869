"""Namesakes: two processes with one node id, and the leftover announcement of a process that is gone.

A node that was killed stays announced until its presence expires. A process that starts with its id must distinguish
that from a process that is alive. Processes of one supervisor may share an id: one replaces the other. They are told
apart by the numbers of their requests (`model.node.first_request`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from duly.model import EndedProcess, Node
from duly.rules.describe import instant

_SLACK = timedelta(seconds=2)  # the clock and the start times of processes come from different sources
_PER_SECOND = 100_000  # a process makes fewer requests than that: each is a round trip to the store


def is_other(announced: Node, mine: Node) -> bool:
    """Whether the announcement under my id is by another process, or by an earlier start of mine."""
    return announced.id == mine.id and announced.started_at != mine.started_at


def is_sibling(announced: Node, mine: Node) -> bool:
    """Whether another process with my id has my supervisor: one of us replaces the other."""
    same_supervisor = mine.supervisor != "" and announced.supervisor == mine.supervisor
    return is_other(announced, mine) and same_supervisor and announced.host == mine.host


def is_replacement(announced: Node, mine: Node) -> bool:
    """Whether a later process of my supervisor has taken over my id."""
    return is_sibling(announced, mine) and announced.started_at > mine.started_at


def requests_of(node: str, first: int, age: float, why: str = "") -> EndedProcess:
    """The requests that a process can have made: it has counted from `first` for `age` seconds."""
    return EndedProcess(node, first, first + int(age * _PER_SECOND) + 1, why)


def is_distinct(process: EndedProcess, others: Iterable[EndedProcess]) -> bool:
    """Whether no other process with the same id can have used one of its numbers.

    A process that starts later counts from a higher number, unless the clock went back between the two.
    """
    return all(
        other.node != process.node or other.last < process.first or process.last < other.first for other in others
    )


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
