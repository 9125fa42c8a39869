"""The coordinator port on memory."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from duly.backends.memory.contents import Contents
from duly.model import Item, Lease, Node, shift


class MemoryCoordinator:
    """Leases, presence and shared values in dictionaries."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        at = now or self._contents.clock.now()
        present = self._contents.leases.get(name)
        if present is not None and present.holder != holder and present.expires_at > at:
            return None
        if present is not None and present.holder == holder and present.expires_at > at:
            fence = present.fence
        else:
            self._contents.last_lease_fence += 1
            fence = self._contents.last_lease_fence
        lease = self._contents.leases[name] = Lease(name, holder, fence, shift(at, ttl))
        return lease

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        expires_at = shift(now or self._contents.clock.now(), ttl)
        renewed: list[Lease | None] = []
        for lease in leases:
            if self._owns(lease):
                self._contents.leases[lease.name] = replace(lease, expires_at=expires_at)
                renewed.append(self._contents.leases[lease.name])
            else:
                renewed.append(None)
        return renewed

    async def release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self._owns(lease):
                del self._contents.leases[lease.name]
        self._contents.notifier.ring()

    def _owns(self, lease: Lease) -> bool:
        present = self._contents.leases.get(lease.name)
        return present is not None and (present.holder, present.fence) == (lease.holder, lease.fence)

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        present = self._contents.leases.get(name)
        return present if present and present.expires_at > (now or self._contents.clock.now()) else None

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        self._contents.nodes[node.id] = (node, shift(now or self._contents.clock.now(), ttl))

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        at = now or self._contents.clock.now()
        node, until = self._contents.nodes.get(node_id, (None, at))
        if node is None or until <= at or started_at not in {None, node.started_at}:
            return False
        self._contents.nodes[node_id] = (
            node if metrics is None else replace(node, metrics=metrics),
            shift(at, ttl),
        )
        return True

    async def retire(self, node_id: str) -> None:
        self._contents.nodes.pop(node_id, None)
        self._contents.notifier.ring()

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        at = now or self._contents.clock.now()
        alive = [node for node, until in self._contents.nodes.values() if until > at]
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    async def get(self, key: str) -> Item | None:
        return self._contents.shared.get(key)

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        present = self._contents.shared.get(key)
        version = present.version if present else 0
        if expect is not None and expect != version:
            return None
        item = self._contents.shared[key] = Item(key, value, version + 1)
        self._contents.shared_notifier.ring()
        return item

    async def watch(self, key: str) -> AsyncIterator[Item]:
        seen = 0
        heard = self._contents.shared_notifier.rings
        while True:
            item = self._contents.shared.get(key)
            if item is not None and item.version > seen:
                seen = item.version
                yield item
            heard = await self._contents.shared_notifier.wait(heard, math.inf)
