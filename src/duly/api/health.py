"""Health: whether this process lives, whether it should get work, and how it is altogether.

Alive is a process that answers. Ready is one that reaches its store and is not stopping. `/health` tells both, with 503
where an orchestrator or load balancer should look elsewhere.
"""

from __future__ import annotations

from msgspec import Struct

from duly.api.calls import Call, Reply, answer
from duly.api.config import ApiContext
from duly.api.responses import HealthAnswer, Status
from duly.errors import DulyError
from duly.scheduler.views import Health
from duly.version import __version__


class Condition(Struct, frozen=True):
    """What `/health` and `/readyz` say."""

    status: str
    ready: bool


def condition(health: Health, *, draining: bool) -> Condition:
    """Draining is healthy, but not ready: running handlers end, and new work goes elsewhere.

    Without its store a process is of no use; without another part, or a leader, it is degraded, as all others are.
    """
    if health.store != "reachable":
        return Condition("degraded" if health.running else "unhealthy", ready=False)
    if health.failing:
        return Condition("unhealthy", ready=False)
    if draining:
        return Condition("draining", ready=False)
    return Condition(health.status, ready=True)


async def _health(context: ApiContext) -> Health:
    try:
        await context.client()  # a client that was never opened could not tell
    except DulyError:
        return Health("degraded", None, False, False, None, "away", 0.0, 0, 0, {"store": "away"})  # by position
    return await context.scheduler.health()


async def get_health(call: Call[None, None]) -> Reply:
    """How this process is; 503 where it is not well."""
    context = call.context
    health = await _health(context)
    found = condition(health, draining=context.draining)
    parts = {name: "reachable" if how == "reachable" else "away" for name, how in health.parts.items()}
    document = HealthAnswer(
        status=found.status,
        instance_id=health.node_id or context.instance_id,
        is_leader=health.is_leader,
        coordinator_health=parts.get("coordinator", parts["store"]) == "reachable",
        timestamp=int((await context.now()).timestamp()),
        role=context.role(),
        draining=context.draining,
        store=parts["store"],
        parts=parts,
        leader=health.leader,
        reasons=health.reasons,
        busy=health.busy,
        slots=health.slots,
        version=__version__,
        authentication=context.settings.authentication,
    )
    return answer(document, 200 if found.ready or found.status == "draining" else 503)


async def livez(_: Call[None, None]) -> Reply:
    """This process answers."""
    return answer(Status("alive"))


async def readyz(call: Call[None, None]) -> Reply:
    """Whether this process should get requests and work."""
    found = condition(await _health(call.context), draining=call.context.draining)
    return answer(Status("ready" if found.ready else found.status), 200 if found.ready else 503)
