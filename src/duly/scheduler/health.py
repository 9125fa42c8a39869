"""Health: how this process and its store are, as a value."""

from __future__ import annotations

import asyncio

from duly.errors import DulyError
from duly.ports import Backend, Composed
from duly.runtime.elector import MAIN
from duly.scheduler.client import Client
from duly.scheduler.placing import overdue
from duly.scheduler.running import Running
from duly.scheduler.views import Health

_PATIENCE = 2.0
_AWAY = "away"


async def health_of(running: Running | None, client: Client | None) -> Health:
    """Ask the store who leads, within a short time; a store that does not answer is part of the answer."""
    node = None if running is None else running.node
    away = 0.0 if node is None else node.health.away_for()
    failing = {} if node is None else node.health.failing()
    leader: str | None = None
    store, unplaced = "closed", ""
    parts: dict[str, str] = {}
    if client is not None:
        (leader, unplaced, store), parts = await asyncio.gather(_told(client.backend), _parts(client.backend))
        store = parts.get("store", store)
    degraded = away > 0 or any(each.startswith(_AWAY) for each in (store, *parts.values()))
    return Health(
        status="unhealthy" if failing else "degraded" if degraded else "closed" if client is None else "healthy",
        node_id=None if node is None else node.id,
        running=node is not None,
        is_leader=node is not None and node.elector.leads,
        leader=leader,
        store=store,
        away_seconds=away,
        busy=0 if node is None else node.worker.busy,
        slots=0 if running is None else running.config.max_concurrent,
        unplaced=unplaced,
        parts=parts,
        failing=failing,
    )


async def _told(backend: Backend) -> tuple[str | None, str, str]:
    """Who leads, what waits to be placed, and how the store is that was asked."""
    try:
        async with asyncio.timeout(_PATIENCE):
            lease = await backend.coordinator.holder(MAIN)
            return None if lease is None else lease.holder, await overdue(backend), "reachable"
    except (DulyError, TimeoutError) as exc:
        return None, "", f"{_AWAY}: {str(exc) or 'no answer'}"


async def _parts(backend: Backend) -> dict[str, str]:
    """Where the store is put together, how each part is."""
    return await backend.parts() if isinstance(backend, Composed) else {}
