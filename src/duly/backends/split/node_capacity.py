"""What the node of a session can start now, as far as its calls show: which queues, which handlers, how many runs.

An entry of a stream has one reader. A node that cannot start its runs must not keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from duly.backends.split.priority_bands import ANY, ReadyRuns
from duly.model import Claimed


class NodeCapacity:
    """`room` is how many more runs the node can start; None until its first claim."""

    def __init__(self) -> None:
        self.room: int | None = None
        self._queues: frozenset[str] | None = None
        self._handlers: Collection[str] | None = None
        self._claims_under_way = 0
        self._stopping = False

    def waits_for(self, queues: Sequence[str] | None) -> None:
        """The node waits for work from these queues; a node that only plans waits for none."""
        self._queues = None if queues is None else frozenset(queues)

    def claim_started(self) -> None:
        """Until the claim is answered, the node may have room.

        A run that is announced meanwhile may come too late for this claim; it must lead to another one.
        """
        self._stopping = False
        self._claims_under_way += 1

    def claim_ended(self) -> None:
        """With or without an answer."""
        self._claims_under_way -= 1

    def claimed(self, handlers: Collection[str] | None, limit: int, claimed: Claimed) -> None:
        """The node had room for `limit` runs and got these. A run that ends later makes room, and a claim follows."""
        self._handlers = handlers
        self.room = limit - len(claimed.claims)

    def stops(self) -> None:
        """The node claims nothing more until it claims again; it may still wait for other events."""
        self._stopping = True

    @property
    def reads_entries(self) -> bool:
        """Whether the node should read entries: it claims, and has room as far as is known."""
        return self._claims and self.room != 0

    @property
    def _claims(self) -> bool:
        return not self._stopping and self._queues != frozenset()

    def can_start(self, queue: str, handler: str) -> bool:
        """Whether the node can start a run of this queue and handler now, as far as is known."""
        if not self._claims or (self.room == 0 and not self._claims_under_way):
            return False
        serves_queue = self._queues is None or queue == ANY or queue in self._queues
        has_handler = self._handlers is None or handler == ANY or handler in self._handlers
        return serves_queue and has_handler

    def can_start_all(self, ready: ReadyRuns) -> bool:
        """Whether the node can start the runs of an entry."""
        return self.can_start(ready.queue, ready.handler)
