"""Presence announces periodically that the node is alive, and asks for a deploy when the store has forgotten the node.

It runs beside the heartbeat, because the coordinator may be another server than the one that keeps the claims: claims
are renewed also while the coordinator is unreachable.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from duly.model import Node
from duly.ports import Coordinator
from duly.rules.namesakes import is_other
from duly.runtime.environment import Environment, NodeService
from duly.runtime.service import Signal

Deploy = Callable[[], Awaitable[None]]


class Presence(NodeService):
    """Extends the presence of the node; announces it again when it has changed or was forgotten.

    `tell` carries a call to the node's own loop, where `forgotten` is called; and `met`, with the other process that
    has announced itself under this node's id, or None when it is gone.
    """

    name = "presence"

    def __init__(
        self,
        env: Environment,
        coordinator: Coordinator,
        card_now: Callable[[], Node],
        forgotten: Callable[[], None],
        met: Callable[[Node | None], None],
        tell: Callable[..., None],
    ) -> None:
        super().__init__(env)
        self._coordinator = coordinator
        self._card_now = card_now
        self._forgotten = forgotten
        self._met = met
        self._tell = tell
        self._lease = env.config.lease
        self._refresh = env.config.refresh
        self._announced: Node | None = None
        self._alone = True

    async def tick(self) -> float:
        node = self._card_now()
        if self._announced is not None and _as_announced(node) == _as_announced(self._announced):
            if await self._coordinator.beat(node.id, self._lease, node.metrics, started_at=node.started_at):
                self._meet(None)
                return self._refresh
            other = next((each for each in await self._coordinator.nodes() if is_other(each, node)), None)
            if other is None:
                self._tell(self._forgotten)
            else:
                self._meet(other)
        await self._coordinator.announce(node, self._lease)
        self._announced = node
        return self._refresh

    def _meet(self, other: Node | None) -> None:
        if other is not None or not self._alone:
            self._tell(self._met, other)
        self._alone = other is None


def _as_announced(node: Node) -> tuple[frozenset[str], int, tuple[str, ...] | None]:
    """What of a node's card may change, its metrics aside, which every beat carries."""
    return node.handlers, node.capacity, node.queues


class Resync:
    """Idle until it is asked. A deploy that fails is tried again, as every service is."""

    name = "deployer"

    def __init__(self, deploy: Deploy) -> None:
        self.signal = Signal()
        self._deploy = deploy
        self._asked = False

    def ask(self) -> None:
        """The store has forgotten this node."""
        self._asked = True
        self.signal.wake()

    async def tick(self) -> float:
        if self._asked:
            await self._deploy()
            self._asked = False
        return math.inf
