"""How many shards there are: the number that jobs are spread over, and the number that may have jobs.

Before a job is moved to a shard, the store records that this shard is in use, and never removes that record: the nodes
share all shards that were ever in use. So every shard with jobs is led by a node, whatever the nodes are configured for
now, and whatever the coordinator has forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

from duly.errors import BackendUnavailable
from duly.model import Node
from duly.ports import ValueStore
from duly.rules.shards import KEY, KIND, agreed_count, known_count, shard_names
from duly.runtime.environment import Environment

_READ_AGAIN = 30.0  # another node may have begun to use more shards


class ShardLayout:
    """What this node knows of the shards."""

    def __init__(self, env: Environment, store: ValueStore) -> None:
        self.known = 1
        self._live = env.live
        self._agreed = self.wanted
        self._clock = env.clock
        self._store = store
        self._read_at = -math.inf

    @property
    def wanted(self) -> int:
        """How many shards this node is configured for."""
        return self._live.config.shards

    @property
    def count(self) -> int:
        """How many shards jobs are spread over."""
        return min(self._agreed, self.known)

    def names(self) -> tuple[str, ...]:
        """All shards that may have jobs, apart from those of schedules that only code can compute."""
        return shard_names(self.known)

    def agree(self, nodes: Iterable[Node]) -> None:
        """Take over what the live nodes are configured for."""
        self._agreed = agreed_count(self.wanted, nodes)

    async def refresh(self) -> None:
        """Read how many shards are in use, and use more if this node is configured for more."""
        now = self._clock.monotonic()
        if self.wanted <= self.known and now < self._read_at:
            return
        with suppress(BackendUnavailable):  # keep the previous numbers; no job is moved to an unknown shard
            self.known = max(self.known, await self._in_use())
            self._read_at = now + _READ_AGAIN

    async def _in_use(self) -> int:
        while True:
            item = await self._store.get(KIND, KEY)
            if (known := known_count(item)) >= self.wanted:
                return known
            version = 0 if item is None else item.version
            if await self._store.put(KIND, KEY, str(self.wanted).encode(), expect=version) is not None:
                return self.wanted
