"""Health: how this process and its store are, as a value."""

from __future__ import annotations

import asyncio

from duly.errors import DulyError
from duly.model import seconds_between
from duly.ports import Backend, Composed
from duly.rules.describe import instant
from duly.runtime.elector import MAIN
from duly.scheduler.client import Client
from duly.scheduler.losses import losses_of
from duly.scheduler.placement_reasons import overdue
from duly.scheduler.running_node import RunningNode
from duly.scheduler.views import Health

_PATIENCE = 2.0
_AWAY = "away"
_RECENT_LOSS = 3600.0  # seconds that a loss of data counts as a reason not to be healthy


async def health_of(running: RunningNode | None, client: Client | None) -> Health:
    """Ask each part of the store, within a short time; one that does not answer is part of the answer."""
    node = None if running is None else running.node
    leader: str | None = None
    unplaced = ""
    parts: dict[str, str] = {}
    losses: list[str] = []
    if client is not None:
        leader, unplaced, parts, losses = await asyncio.gather(
            _leader(client.backend), _unplaced(client.backend), _parts(client.backend), _losses(client.backend)
        )
    failing = {} if node is None else node.health.failing()
    reasons = _reasons(running, client, parts, leader, failing) + losses
    return Health(
        status="unhealthy" if failing else "degraded" if reasons else "closed" if client is None else "healthy",
        node_id=None if node is None else node.id,
        running=node is not None,
        is_leader=node is not None and node.elector.leads,
        leader=leader,
        store=parts.get("store", "closed"),
        away_seconds=0.0 if node is None else node.health.away_for(),
        busy=0 if node is None else node.worker.busy,
        slots=0 if running is None else running.client.live.config.max_concurrent,
        unplaced=unplaced,
        parts=parts,
        failing=failing,
        reasons=tuple(reasons),
    )


def _reasons(
    running: RunningNode | None,
    client: Client | None,
    parts: dict[str, str],
    leader: str | None,
    failing: dict[str, str],
) -> list[str]:
    """Why it is not healthy, if it is not."""
    found = [f"the {part} is {how}" for part, how in parts.items() if how.startswith(_AWAY)]
    found += [f"{service} {how}" for service, how in failing.items()]
    if client is not None and client.clock.doubt:
        found.append(f"the store's clock has jumped by {client.clock.doubt:+.1f} s")
    if client is not None:
        found += [f"a setting of the cluster is not applied: {why}" for why in client.live.in_force.problems.values()]
    if running is not None:
        if not found and (away := running.node.health.away_for()):
            found.append(f"a service of this node has not reached the store for {away:.1f} s")
        if leader is None and running.node.elector.leaderless_for() > 2 * running.config.leader_lease:
            found.append("nobody leads: nothing is planned")
    return found


async def _leader(backend: Backend) -> str | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            lease = await backend.coordinator.holder(MAIN)
    except (DulyError, TimeoutError):
        return None  # the part that does not answer is named by `_parts`
    return None if lease is None else lease.holder


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
    """How each part is: the store alone, unless it is composed of several."""
    if isinstance(backend, Composed):
        return await backend.parts()
    try:
        async with asyncio.timeout(_PATIENCE):
            await backend.store.time()
    except (DulyError, TimeoutError) as exc:
        return {"store": f"{_AWAY}: {str(exc) or 'no answer'}"}
    return {"store": "reachable"}
