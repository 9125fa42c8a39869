"""Health and metrics: whether this process is alive and ready for requests and work, and what it has counted.

A process that answers is alive. One that reaches its store and is not stopping is ready. `/health` says both, with
status 503 if an orchestrator or load balancer should use another process.
"""

from __future__ import annotations

from msgspec import Struct

from duly.api.calls import Call, Reply, answer
from duly.api.config import ApiContext
from duly.api.responses import HealthAnswer, MetricsAnswer, Status, response
from duly.api.visibility import require_unlimited
from duly.errors import DulyError
from duly.model import State
from duly.runtime.rates import LAST_START
from duly.scheduler.views import Health
from duly.version import __version__

_DISPATCHED = (State.RUNNING, State.COMPLETED, State.FAILED, State.LOST)
_TEXTS = ("text/plain", "application/openmetrics-text")


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


async def get_metrics(call: Call[None, None]) -> Reply:
    """The counts of the cluster as JSON; the metrics for Prometheus if `Accept` asks for text."""
    require_unlimited(call.principal)
    accept = call.header(b"accept") or ""
    if any(text in accept for text in _TEXTS) and "application/json" not in accept:
        return await prometheus(call)
    client = await call.context.client()
    counts = await client.backend.store.counts()
    states = counts.states
    reported = [node.metrics.get(LAST_START, 0.0) for node in await call.context.nodes()]
    return answer(
        MetricsAnswer(
            timestamp=int(client.clock.now().timestamp()),
            **{f"{state.value}_jobs": states.get(state, 0) for state in State},
            jobs_dispatched=sum(states.get(state, 0) for state in _DISPATCHED),
            last_dispatch=int(max(*reported, call.context.meters.last_start, 0.0)),
            at_least=tuple(sorted(counts.at_least)),
        )
    )


async def prometheus(call: Call[None, None]) -> Reply:
    """The metrics of this process, and the counts of the cluster, for Prometheus."""
    from duly.observe.prometheus import Snapshot, exposition  # noqa: PLC0415  # an extra

    require_unlimited(call.principal)
    context = call.context
    client = await context.client()
    counts = await client.backend.store.counts()
    health = await context.scheduler.health()
    snapshot = Snapshot(
        meters=context.meters,
        counts=counts,
        now=await client.backend.store.time(),
        leads=health.is_leader,
        busy=health.busy,
        shards=len(health.led),
        process=context.settings.process,
    )
    text, content_type = exposition(snapshot, call.header(b"accept") or "")
    return Reply(200, text, content_type.encode())
