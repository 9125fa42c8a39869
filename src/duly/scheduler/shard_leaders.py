"""Who plans: the leader of each shard."""

from __future__ import annotations

from duly.ports import Backend
from duly.rules.shards import KEY, KIND, known_count, shard_names


async def leader_of(backend: Backend, shard: str) -> str | None:
    """The node that leads a shard, None if nobody does."""
    lease = await backend.coordinator.holder(shard)
    return None if lease is None else lease.holder


async def shard_leaders(backend: Backend) -> dict[str, str | None]:
    """The leader of each shard that may have jobs, None where nobody leads; the first shard is the cluster's."""
    known = known_count(await backend.store.get(KIND, KEY))
    return {shard: await leader_of(backend, shard) for shard in shard_names(known)}
