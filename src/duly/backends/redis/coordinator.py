"""The coordinator port on Redis: leases, presence and shared values, each verb one script. Fences are the store's."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from duly.backends.announced import life_mark
from duly.backends.redis.client import RedisClient
from duly.backends.tolerance import readable
from duly.model import Item, Lease, Node, from_micros

SHARED = "shared"  # the channel on which the key of a changed value is published

_LONGEST_TTL = 100 * 365 * 86_400.0  # seconds; the scripts count microseconds in doubles

_node = msgspec.json.Decoder(Node)
_metrics = msgspec.json.Decoder(dict[str, float])
_encode = msgspec.json.encode


class RedisCoordinator:
    """Who is alive, and who holds which lease."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        acquired = await self._client.call_at(now, "lease_acquire", name, holder, _micros(ttl))
        if acquired is None:
            return None
        fence, expires = acquired
        self._client.identity.saw(fence)
        return Lease(name, holder, fence, from_micros(expires))

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        if not leases:
            return []
        renewed = await self._client.call_at(now, "lease_renew", _micros(ttl), *_arguments(leases))
        return [
            None if expires is None else replace(lease, expires_at=from_micros(expires))
            for lease, expires in zip(leases, renewed, strict=True)
        ]

    async def release(self, leases: Sequence[Lease]) -> None:
        if leases:
            await self._client.call("lease_release", *_arguments(leases))

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        found = await self._client.call_at(now, "lease_holder", name)
        if found is None:
            return None
        holder, fence, expires = found
        return Lease(name, holder.decode(), fence, from_micros(expires))

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        await self._client.call_at(now, "node_announce", node.id, _encode(node), _micros(ttl))

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        encoded = b"" if metrics is None else _encode(metrics)
        arguments = (node_id, _micros(ttl), encoded, life_mark(started_at))
        extended, store_id, last_fence = await self._client.call_at(now, "node_beat", *arguments)
        if self._client.identity.differs(store_id, last_fence):
            await self._client.check_identity()
        return bool(extended)

    async def retire(self, node_id: str) -> None:
        await self._client.call("node_retire", node_id)

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        found = await self._client.call_at(now, "node_list")
        alive = readable(lambda pair: _decode(*pair), zip(found[::2], found[1::2], strict=True))
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    # --- shared values

    async def get(self, key: str) -> Item | None:
        found = await self._client.on_key("HGET", "shared", key)
        if found is None:
            return None
        version, _, value = found.partition(b":")
        return Item(key, value, int(version))

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        version = await self._client.call("shared_put", key, value, "" if expect is None else expect)
        return None if version is None else Item(key, value, version)

    async def watch(self, key: str) -> AsyncIterator[Item]:
        seen = 0
        async with self._client.listen(SHARED) as listener:
            while True:
                item = await self.get(key)
                if item is not None and item.version > seen:
                    seen = item.version
                    yield item
                await listener.wait(math.inf)


def _micros(seconds: float) -> int:
    return round(min(seconds, _LONGEST_TTL) * 1_000_000)


def _arguments(leases: Sequence[Lease]) -> list[str | int]:
    return [word for lease in leases for word in (lease.name, lease.holder, lease.fence)]


def _decode(text: bytes, metrics: bytes | None) -> Node:
    node = _node.decode(text)
    return node if metrics is None else replace(node, metrics=_metrics.decode(metrics))
