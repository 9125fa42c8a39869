"""Shards: where a job is planned, and which shards a scheduler node takes, keeps and hands over.

The hash of a job's name decides its shard. The planner moves a job there when it plans it, so a job may be in
another shard for a while; every shard that may have jobs is led by some node. Safety does not depend on this module:
a cursor moves by compare-and-set under the epoch of a shard, whatever a node assumes about shards and nodes.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from duly.model import Firing, Item, JobRecord, Node, Role
from duly.model.config import MOST_SHARDS
from duly.model.job import JOB_SHARD, MAIN
from duly.model.node import PROTOCOL

# The store's value that says how many shards have ever been in use; it only grows (`runtime.shard_layout`).
KIND, KEY = "planning", "shards"

# Metrics of a node, if greater than one: how many shards it is configured for, and how many it knows.
SHARDS, KNOWN_SHARDS = "shards", "known_shards"
STOPPING = "stopping"  # also a metric of a node: it takes over no more shards

_PER_RANK = 0.05
_LONGEST_TURN = 0.2
_AT_SHARE = 0.1  # of the lease: how much longer a node waits if it already has its share


# --- jobs


def shard_names(count: int) -> tuple[str, ...]:
    """The names of that many shards. The first has the same name as without shards."""
    return (MAIN, *(f"{MAIN}/{number}" for number in range(1, count)))


def shard_of(job: str, count: int) -> str:
    """The shard that a job belongs to if there are that many."""
    number = zlib.crc32(job.encode()) % count
    return f"{MAIN}/{number}" if number else MAIN


def is_shared(shard: str) -> bool:
    """Whether a shard has jobs that every scheduler node can plan."""
    return not shard.startswith(JOB_SHARD)


def homeward(firing: Firing, record: JobRecord, count: int) -> Firing:
    """The same firing, which also moves its job to the shard that it belongs to."""
    shard = record.shard
    if (count == 1 and shard == MAIN) or not is_shared(shard):
        return firing
    home = shard_of(record.name, count)
    return firing if home == shard else replace(firing, move_to=home)


def relocation(record: JobRecord, count: int) -> Firing:
    """Move a job to the shard that it belongs to; it is planned there, with the same `plan_at`."""
    assert record.cursor is not None
    return Firing(
        uid=record.uid,
        name=record.name,
        revision=record.revision,
        expect=record.cursor,
        cursor=record.cursor,
        plan_at=record.plan_at,
        move_to=shard_of(record.name, count),
    )


# --- how many there are


def known_count(item: Item | None) -> int:
    """How many shards may have jobs, given the value that the store keeps."""
    if item is None:
        return 1
    try:
        return min(max(int(item.value), 1), MOST_SHARDS)
    except ValueError:
        return MOST_SHARDS  # an unreadable value: all shards that have jobs are among these


def agreed_count(own: int, nodes: Iterable[Node]) -> int:
    """How many shards jobs are spread over: the highest setting among live scheduler nodes.

    So all nodes agree while they are restarted one by one with another setting. While nodes of 0.1.0 are alive there is
    one shard, because they lead no other.
    """
    count = own
    for node in nodes:
        if node.protocol < PROTOCOL:
            return 1
        if Role.SCHEDULER in node.roles:
            count = max(count, int(node.metrics.get(SHARDS, 1)))
    return count


# --- which node leads which shard


def sharers(nodes: Iterable[Node], me: str, known: int) -> list[str]:
    """The nodes that take shards: scheduler nodes that know of all of them and are not stopping; and this one."""
    return sorted(
        {me}
        | {
            node.id
            for node in nodes
            if Role.SCHEDULER in node.roles
            and node.metrics.get(KNOWN_SHARDS, 1) >= known
            and not node.metrics.get(STOPPING)
        }
    )


def share(shards: int, nodes: int) -> int:
    """The most shards that each node leads if all nodes are present."""
    return math.ceil(shards / max(nodes, 1))


def rank(shard: str, me: str, nodes: Collection[str]) -> int:
    """How many nodes come before this one in the order of taking a shard.

    Each shard has its own order of nodes, so that the shards of a node that is gone go to different ones.
    """
    return sum(_weight(shard, node) > _weight(shard, me) for node in nodes if node != me)


def turn(rank: int, lease: float, *, has_share: bool) -> float:
    """How many seconds a shard must be free before a node of that rank takes it.

    A node that has its share lets the others go first, but not for long: a shard must not stay without a leader.
    """
    wait = min(rank * _PER_RANK, _LONGEST_TURN)
    return wait + _AT_SHARE * lease if has_share else wait


def to_hand_over(held: Sequence[str], me: str) -> str:
    """The shard that a node with too many hands over: the least preferred one; leadership of the cluster goes last."""
    return min(held, key=lambda shard: (shard == MAIN, _weight(shard, me)))


def _weight(shard: str, node: str) -> bytes:
    """Rendezvous hashing: the node with the greatest weight is the first choice of a shard."""
    return hashlib.blake2b(f"{shard}\0{node}".encode(), digest_size=8).digest()
