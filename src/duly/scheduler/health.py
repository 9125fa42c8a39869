"""Health: the state of this process and its store, as a value."""

from __future__ import annotations

import asyncio

from duly.errors import DulyError
from duly.model import seconds_between
from duly.model.job import MAIN
from duly.ports import Backend, Composed
from duly.rules.describe import instant
from duly.rules.shards import is_shared
from duly.scheduler.client import Client
from duly.scheduler.losses import losses_of
from duly.scheduler.placement_reasons import overdue
from duly.scheduler.running_node import RunningNode
from duly.scheduler.shard_leaders import shard_leaders
from duly.scheduler.views import Health

_PATIENCE = 2.0
_AWAY = "away"
_RECENT_LOSS = 3600.0  # seconds that a loss of data counts as a reason not to be healthy


async def health_of(running: RunningNode | None, client: Client | None) -> Health:
    """Check each part of the store, within a short time; a part that does not answer is reported as such."""
    node = None if running is None else running.node
    leaders: dict[str, str | None] = {}
    unplaced = ""
    parts: dict[str, str] = {}
    losses: list[str] = []
    if client is not None:
        leaders, unplaced, parts, losses = await asyncio.gather(
            _leaders(client.backend), _unplaced(client.backend), _parts(client.backend), _losses(client.backend)
        )
    failing = {} if node is None else node.health.failing()
    reasons = _reasons(running, client, parts, leaders, failing) + losses
    return Health(
        status="unhealthy" if failing else "degraded" if reasons else "closed" if client is None else "healthy",
        node_id=None if node is None else node.id,
        running=node is not None,
        is_leader=node is not None and node.elector.leads,
        leader=leaders.get(MAIN),
        store=parts.get("store", "closed"),
        away_seconds=0.0 if node is None else node.health.away_for(),
        busy=0 if node is None else node.worker.busy,
        slots=0 if running is None else running.client.live.config.max_concurrent,
        unplaced=unplaced,
        parts=parts,
        failing=failing,
        reasons=tuple(reasons),
        shards=leaders if len(leaders) > 1 else {},
        led=() if node is None else tuple(sorted(shard for shard in node.elector.led() if is_shared(shard))),
    )


def _reasons(
    running: RunningNode | None,
    client: Client | None,
    parts: dict[str, str],
    leaders: dict[str, str | None],
    failing: dict[str, str],
) -> list[str]:
    """Why the process is not healthy, if it is not."""
    found = [f"the {part} is {how}" for part, how in parts.items() if how.startswith(_AWAY)]
    found += [f"{service} {how}" for service, how in failing.items()]
    if client is not None and client.clock.doubt:
        found.append(f"the store's clock has jumped by {client.clock.doubt:+.1f} s")
    if client is not None:
        found += [f"a setting of the cluster is not applied: {why}" for why in client.live.in_force.problems.values()]
    if running is not None:
        if not found and (away := running.node.health.away_for()):
            found.append(f"a service of this node has not reached the store for {away:.1f} s")
        found += _unled(running, leaders)
    return found


def _unled(running: RunningNode, leaders: dict[str, str | None]) -> list[str]:
    """The shards that have been without a leader for too long."""
    since = running.node.elector.leaderless_for()
    unled = [shard for shard, seconds in since.items() if seconds > 2 * running.config.leader_lease]
    unled = [shard for shard in unled if leaders.get(shard) is None]
    if not unled:
        return []
    if running.node.layout.known == 1:
        return ["nobody leads: nothing is planned"]
    return [f"nobody leads {shard}: its jobs are not planned" for shard in sorted(unled)]


async def _leaders(backend: Backend) -> dict[str, str | None]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await shard_leaders(backend)
    except (DulyError, TimeoutError):
        return {}  # the part that does not answer is named by `_parts`


async def _unplaced(backend: Backend) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await overdue(backend)
    except (DulyError, TimeoutError):
        return ""  # as above


async def _losses(backend: Backend) -> list[str]:
    """What the store lost lately."""
    try:
        async with asyncio.timeout(_PATIENCE):
            found = await losses_of(backend.store)
    except (DulyError, TimeoutError):
        return []  # as above
    now = backend.clock.now()
    recent = [loss for loss in found if seconds_between(loss.at, now) < _RECENT_LOSS]
    return [f"the store lost {loss}, noticed at {instant(loss.at)}" for loss in recent[-1:]]


async def _parts(backend: Backend) -> dict[str, str]:
    """The state of each part: only the store, unless it is composed of several parts."""
    if isinstance(backend, Composed):
        return await backend.parts()
    try:
        async with asyncio.timeout(_PATIENCE):
            await backend.store.time()
    except (DulyError, TimeoutError) as exc:
        return {"store": f"{_AWAY}: {str(exc) or 'no answer'}"}
    return {"store": "reachable"}
