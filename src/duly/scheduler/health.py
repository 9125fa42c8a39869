"""Health: how this process and its store are, as a value."""

from __future__ import annotations

import asyncio

from duly.errors import DulyError
from duly.runtime.elector import MAIN
from duly.scheduler.client import Client
from duly.scheduler.placing import overdue
from duly.scheduler.running import Running
from duly.scheduler.views import Health

_PATIENCE = 2.0


async def health_of(running: Running | None, client: Client | None) -> Health:
    """Ask the store who leads, within a short time; a store that does not answer is part of the answer."""
    node = None if running is None else running.node
    away = 0.0 if node is None else node.reachability.away_for()
    leader: str | None = None
    store, unplaced = "closed", ""
    if client is not None:
        try:
            async with asyncio.timeout(_PATIENCE):
                lease = await client.backend.coordinator.holder(MAIN)
                unplaced = await overdue(client.backend)
            leader = None if lease is None else lease.holder
            store = "reachable"
        except (DulyError, TimeoutError) as exc:
            store = f"away: {exc}" if str(exc) else "away: no answer"
    degraded = away > 0 or store.startswith("away")
    return Health(
        status="degraded" if degraded else "closed" if client is None else "healthy",
        node_id=None if node is None else node.id,
        running=node is not None,
        is_leader=node is not None and node.elector.leads,
        leader=leader,
        store=store,
        away_seconds=away,
        busy=0 if node is None else node.worker.busy,
        slots=0 if running is None else running.config.max_concurrent,
        unplaced=unplaced,
    )
