"""The deployer: brings the store in line with this process's code once more, when the store has forgotten the node.

A store that does not know a node which has announced itself was emptied, replaced, or out of reach for long. Whatever
it was, the definitions may be gone with it; saving those that are there changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from duly.runtime.service import Signal

Deploy = Callable[[], Awaitable[None]]


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
