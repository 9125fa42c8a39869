"""Placement: which node an assignable run is assigned to, decided by what the nodes announce and already have.

A node takes due runs for its free slots, and also a few upcoming ones, which it starts by its own timer. The least
loaded node goes first. Safety does not depend on this module: a run starts under its fenced claim, whatever is believed
about the nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duly.model import Assignment, Node, Role, Run, Share
from duly.model.holds import UNPLACED

At = TypeVar("At", int, datetime)
Selector = Mapping[str, str]


def to_place(run: Run) -> Run:
    """The same run, to be started on the node that the leader chooses."""
    return run if run.final else replace(run, assignable=True, hold=UNPLACED)


def is_assigned(placement: Literal["queue", "assign"], selector: Selector | None) -> bool:
    """Whether the leader places a job's runs: because it places all runs, or because the job has a selector."""
    return placement == "assign" or bool(selector)


def placing_order(ready_at: At, priority: int, run_id: str, now: At) -> tuple[bool, int, At, str]:
    """The sort key of runs to be placed: due ones by urgency, then the others by ready time."""
    due = ready_at <= now
    return (not due, -priority if due else 0, ready_at, run_id)


# --- which nodes can run it


def lacks(node: Node, run: Run, selector: Selector | None) -> str | None:
    """Why a node cannot run this, in plain words; None if it can."""
    if Role.WORKER not in node.roles:
        return "does not work"
    if run.handler not in node.handlers:
        return f"has no handler {run.handler!r}"
    if node.queues is not None and run.queue not in node.queues:
        return f"does not listen to queue {run.queue!r}"
    wrong = [f"{name}={value}" for name, value in (selector or {}).items() if node.labels.get(name) != value]
    return f"has no label {', '.join(wrong)}" if wrong else None


def why_unplaced(
    run: Run, nodes: Sequence[Node], selector: Selector | None, leader: str | None, paused: Collection[str]
) -> str:
    """Why a run is not placed yet, in plain words."""
    if run.queue in paused:
        return f"its queue {run.queue!r} is paused"
    working = [node for node in nodes if Role.WORKER in node.roles]
    if not working:
        return "no working node is alive"
    if leader is None:
        return "nobody leads, and the leader places runs"
    reasons = [lacks(node, run, selector) for node in working]
    if None in reasons:
        return "the nodes that match have no room yet, or its time is far off"
    labels = " and ".join(f"{name}={value}" for name, value in sorted((selector or {}).items()))
    if selector and not any(_labelled(node, selector) for node in working):
        return f"no live node matches {labels}"
    return f"no live node matches: {'; '.join(sorted({reason for reason in reasons if reason}))}"


def _labelled(node: Node, selector: Selector) -> bool:
    return all(node.labels.get(name) == value for name, value in selector.items())


# --- placing


class Placing(Struct, frozen=True):
    """The decision: the assignments, and how full the nodes are. `crowded`: the nodes for a due run were full.

    `full`: no node has a free slot. `sated`: no node takes more upcoming runs either.
    """

    assignments: list[Assignment]
    crowded: bool
    full: bool
    sated: bool


class Room(Struct):
    """A node, and how many runs it has so far."""

    node: Node
    due: int
    upcoming: int

    @property
    def free(self) -> int:
        """How many due runs it takes."""
        return max(0, self.node.capacity - self.due)

    @property
    def load(self) -> tuple[float, str]:
        """The sort key: least loaded first, then by id."""
        return ((self.due + self.upcoming) / self.node.capacity, self.node.id)


def rooms_of(nodes: Iterable[Node], shares: Mapping[str, Share]) -> list[Room]:
    """The nodes that take runs. One that is stopping announces no capacity."""
    working = [node for node in nodes if Role.WORKER in node.roles and node.capacity > 0]
    return [Room(node, share.due, share.upcoming) for node in working for share in [shares.get(node.id, Share())]]


def place(
    runs: Iterable[Run],
    rooms: Sequence[Room],
    ahead: int,
    selectors: Mapping[str, Selector | None],
    paused: Collection[str],
    now: datetime,
    until: datetime,
) -> Placing:
    """Assign runs to nodes, in the given order; updates the rooms. `selectors` are by job.

    Runs of `paused` queues stay: they would only occupy slots. A due run goes to a node with a free
    slot, one that is due by `until` to a node with fewer than `ahead` upcoming runs; later ones stay.
    """
    able: dict[tuple[str, str, str], list[Room]] = {}
    assignments: list[Assignment] = []
    crowded = False
    for run in runs:
        if run.ready_at > until or run.queue in paused:
            continue
        kind = (run.job, run.handler, run.queue)
        if kind not in able:
            able[kind] = [room for room in rooms if lacks(room.node, run, selectors.get(run.job)) is None]
        due = run.ready_at <= now
        free = [room for room in able[kind] if (room.free if due else room.upcoming < ahead)]
        if not free:
            crowded = crowded or (due and bool(able[kind]))
            continue
        room = min(free, key=lambda room: room.load)
        room.due, room.upcoming = room.due + due, room.upcoming + (not due)
        assignments.append(Assignment(run.id, room.node.id))
    full = not any(room.free for room in rooms)
    return Placing(assignments, crowded, full, sated=full and all(room.upcoming >= ahead for room in rooms))


def lapsed(nodes: Iterable[Node], shares: Mapping[str, Share]) -> list[str]:
    """The nodes that have assigned runs and are no longer present."""
    return sorted(set(shares) - {node.id for node in nodes})
