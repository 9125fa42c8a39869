"""What the node of a session can start now, as far as its own calls tell: which queues, which handlers, how many runs.

An entry of the doorbell is for one reader. A node that cannot start its runs must not keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from duly.backends.split.priority_bands import ANY, Ready
from duly.model import Claimed


class Taker:
    """Nothing is known of a node that has made no claim yet: `room` is None."""

    def __init__(self) -> None:
        self.room: int | None = None
        self._queues: frozenset[str] | None = None
        self._handlers: Collection[str] | None = None
        self._asking = 0
        self._left = False

    def waits(self, queues: Sequence[str] | None) -> None:
        """It waits for work of these queues; of none, if it only plans."""
        self._queues = None if queues is None else frozenset(queues)

    def asks(self) -> None:
        """A claim begins, and until it is answered the node may have room.

        A run that is announced meanwhile may come too late for this claim; it must lead to another.
        """
        self._left = False
        self._asking += 1

    def asked(self) -> None:
        """The claim has ended, with or without an answer."""
        self._asking -= 1

    def claimed(self, handlers: Collection[str] | None, limit: int, claimed: Claimed) -> None:
        """It had room for `limit` runs and got these. Whatever ends later makes room for more, and is claimed for."""
        self._handlers = handlers
        self.room = limit - len(claimed.claims)

    def leaves(self) -> None:
        """It claims nothing more, though it may wait for other news, until it claims again."""
        self._left = True

    @property
    def reads(self) -> bool:
        """Whether it should read entries: it claims, and has room as far as is known."""
        return self._claims and self.room != 0

    @property
    def _claims(self) -> bool:
        return not self._left and self._queues != frozenset()

    def takes(self, queue: str, handler: str) -> bool:
        """Whether it can start a run of this queue and handler now, as far as is known."""
        if not self._claims or (self.room == 0 and not self._asking):
            return False
        served = self._queues is None or queue == ANY or queue in self._queues
        known = self._handlers is None or handler == ANY or handler in self._handlers
        return served and known

    def takes_all(self, ready: Ready) -> bool:
        """Whether it can start the runs of an entry."""
        return self.takes(ready.queue, ready.handler)
