"""Nodes and leases: which nodes are alive, and which holds which right."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from duly.model.instant import to_micros


class Role(StrEnum):
    """What a node does: plan (compete for leadership), work, or both."""

    SCHEDULER = "scheduler"
    WORKER = "worker"


# The version of the records that nodes share. 1 is 0.1.0. From 2 on, scheduled runs wait separately from others and
# may have a time by which they must start.
PROTOCOL = 2


class Node(Struct, frozen=True):
    """One process of the cluster, as it announces itself.

    `queues` None means all; `handlers` are the names it has code for. `metrics` is a small snapshot for people.
    `protocol` is the `PROTOCOL` of its code; 0.1.0 announces none. `supervisor` names the supervisor that
    started the process, if there is one: while it replaces a process, both announce themselves under one id.
    """

    id: str
    host: str
    pid: int
    started_at: datetime
    roles: tuple[Role, ...] = (Role.SCHEDULER, Role.WORKER)
    queues: tuple[str, ...] | None = None
    handlers: frozenset[str] = frozenset()
    labels: dict[str, str] = {}
    capacity: int = 0
    version: str = ""
    metrics: dict[str, float] = {}
    protocol: int = 1
    supervisor: str = ""


def first_request(started_at: datetime) -> int:
    """The number after which a process that started then counts its requests to the store.

    A request takes much longer than a microsecond. So the numbers of a process stay below those of one that starts
    later, and every number that it uses is at most this one plus its age in microseconds.
    """
    return to_micros(started_at)


class EndedProcess(Struct, frozen=True):
    """A process of a node that has certainly ended, and the numbers of the requests that it can have made.

    A process numbers its requests from its start time on (`first_request`), so several processes with one node id have
    different numbers. `why` is how it ended, in words.
    """

    node: str
    first: int
    last: int
    why: str = ""


class Lease(Struct, frozen=True, gc=False):
    """A named right held until `expires_at` on the coordinator's clock. `fence` grows with every new holder."""

    name: str
    holder: str
    fence: int
    expires_at: datetime


class Item(Struct, frozen=True):
    """A small stored value and the version it is compared with; versions start at 1."""

    key: str
    value: bytes
    version: int


class Entry(Struct, frozen=True):
    """One entry of a log; sequence numbers start at 1 and grow by one."""

    sequence: int
    at: datetime
    value: bytes
