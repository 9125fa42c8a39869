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

SHARED = "shared"  # the channel on which the keys of shared values are said that changed

_FOREVER = 100 * 365 * 86_400.0  # seconds; the scripts count microseconds in doubles

_node = msgspec.json.Decoder(Node)
_metrics = msgspec.json.Decoder(dict[str, float])
_encode = msgspec.json.encode


class RedisCoordinator:
    """Who is alive, and who holds which right."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        taken = await self._client.call("lease_acquire", name, holder, _micros(ttl), self._client.moment(now))
        if taken is None:
            return None
        fence, expires = taken
        self._client.incarnation.saw(fence)
        return Lease(name, holder, fence, from_micros(expires))

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        if not leases:
            return []
        renewed = await self._client.call("lease_renew", _micros(ttl), self._client.moment(now), *_rights(leases))
        return [
            None if expires is None else replace(lease, expires_at=from_micros(expires))
            for lease, expires in zip(leases, renewed, strict=True)
        ]

    async def release(self, leases: Sequence[Lease]) -> None:
        if leases:
            await self._client.call("lease_release", *_rights(leases))

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        found = await self._client.call("lease_holder", name, self._client.moment(now))
        if found is None:
            return None
        holder, fence, expires = found
        return Lease(name, holder.decode(), fence, from_micros(expires))

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        await self._client.call("node_announce", node.id, _encode(node), _micros(ttl), self._client.moment(now))

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        said = b"" if metrics is None else _encode(metrics)
        words = (node_id, _micros(ttl), said, self._client.moment(now), life_mark(started_at))
        extended, incarnation, last = await self._client.call("node_beat", *words)
        if self._client.incarnation.differs(incarnation, last):
            await self._client.recognise()
        return bool(extended)

    async def retire(self, node_id: str) -> None:
        await self._client.call("node_retire", node_id)

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        found = await self._client.call("node_list", self._client.moment(now))
        alive = readable(lambda pair: _met(_node.decode(pair[0]), pair[1]), zip(found[::2], found[1::2], strict=True))
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    # --- shared values

    async def get(self, key: str) -> Item | None:
        found = await self._client.command("HGET", self._client.prefix + b"shared", key)
        if found is None:
            return None
        version, _, value = found.partition(b":")
        return Item(key, value, int(version))

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        version = await self._client.call("shared_put", key, value, "" if expect is None else expect)
        return None if version is None else Item(key, value, version)

    async def watch(self, key: str) -> AsyncIterator[Item]:
        seen = 0
        async with self._client.ear(SHARED) as ear:
            while True:
                item = await self.get(key)
                if item is not None and item.version > seen:
                    seen = item.version
                    yield item
                await ear.wait(math.inf)


def _micros(seconds: float) -> int:
    return round(min(seconds, _FOREVER) * 1_000_000)


def _rights(leases: Sequence[Lease]) -> list[str | int]:
    return [word for lease in leases for word in (lease.name, lease.holder, lease.fence)]


def _met(node: Node, metrics: bytes | None) -> Node:
    return node if metrics is None else replace(node, metrics=_metrics.decode(metrics))
