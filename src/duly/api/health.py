"""Health: whether this process is alive, and whether it is ready for requests and work.

A process that answers is alive. One that reaches its store and is not stopping is ready. `/health` says both, with
status 503 if an orchestrator or load balancer should use another process.
"""

from __future__ import annotations

from msgspec import Struct

from duly.api.calls import Call, Reply, answer
from duly.api.config import ApiContext
from duly.api.responses import HealthAnswer, Status, response
from duly.errors import DulyError
from duly.scheduler.views import Health
from duly.version import __version__


class _Readiness(Struct, frozen=True):
    """The status in `/health`, and whether the process is ready."""

    status: str
    ready: bool


def _readiness(health: Health, *, draining: bool) -> _Readiness:
    """A process that drains is healthy but not ready: running handlers end, and new work goes to other processes.

    Without its store a process is not ready; without another part, or a leader, it is degraded like all others.
    """
    if health.store != "reachable":
        return _Readiness("degraded" if health.running else "unhealthy", ready=False)
    if health.failing:
        return _Readiness("unhealthy", ready=False)
    if draining:
        return _Readiness("draining", ready=False)
    return _Readiness(health.status, ready=True)


async def _health(context: ApiContext) -> Health:
    try:
        await context.client()  # opens the store if it is not open yet
    except DulyError:
        return Health("degraded", None, False, False, None, "away", 0.0, 0, 0, {"store": "away"})  # by position
    return await context.scheduler.health()


async def get_health(call: Call[None, None]) -> Reply:
    """The health of this process; 503 if it is not healthy."""
    context = call.context
    health = await _health(context)
    found = _readiness(health, draining=context.draining)
    parts = {name: "reachable" if how == "reachable" else "away" for name, how in health.parts.items()}
    document = response(
        HealthAnswer,
        health,
        status=found.status,
        instance_id=health.node_id or context.instance_id,
        coordinator_health=parts.get("coordinator", parts["store"]) == "reachable",
        timestamp=int((await context.now()).timestamp()),
        role=context.role(),
        draining=context.draining,
        store=parts["store"],
        parts=parts,
        version=__version__,
        authentication=context.settings.authentication,
    )
    return answer(document, 200 if found.ready or found.status == "draining" else 503)


async def livez(_: Call[None, None]) -> Reply:
    """This process answers."""
    return answer(Status("alive"))


async def readyz(call: Call[None, None]) -> Reply:
    """Whether this process is ready for requests and work."""
    found = _readiness(await _health(call.context), draining=call.context.draining)
    return answer(Status("ready" if found.ready else found.status), 200 if found.ready else 503)
