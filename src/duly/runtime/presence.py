"""Presence: says that the node lives, again and again. It keeps step with the heartbeat but does not hold it up.

The coordinator may be another server than the one that keeps the claims: when it is away, claims are renewed all the
same.
"""

from __future__ import annotations

from collections.abc import Callable

from duly.model import Node
from duly.ports import Coordinator
from duly.runtime.service import Signal
from duly.runtime.surroundings import Surroundings


class Presence:
    """Extends the presence of the node; announces it anew when it has changed or was forgotten.

    `tell` carries a call to the node's own loop, where `forgotten` is called.
    """

    name = "presence"

    def __init__(
        self,
        around: Surroundings,
        coordinator: Coordinator,
        card_now: Callable[[], Node],
        forgotten: Callable[[], None],
        tell: Callable[..., None],
    ) -> None:
        self.signal = Signal()
        self._coordinator = coordinator
        self._card_now = card_now
        self._forgotten = forgotten
        self._tell = tell
        self._lease = around.config.lease
        self._refresh = around.config.refresh
        self._announced: Node | None = None

    async def tick(self) -> float:
        node = self._card_now()
        if self._announced is not None and _as_announced(node) == _as_announced(self._announced):
            if await self._coordinator.beat(node.id, self._lease, node.metrics):
                return self._refresh
            self._tell(self._forgotten)
        await self._coordinator.announce(node, self._lease)
        self._announced = node
        return self._refresh


def _as_announced(node: Node) -> tuple[frozenset[str], int]:
    """What of a node's card may change, its metrics aside, which every beat carries."""
    return node.handlers, node.capacity
