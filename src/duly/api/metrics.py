"""Metrics: the counts of the cluster as JSON, and the metrics of this process as text for Prometheus."""

from __future__ import annotations

from duly.api.calls import Call, Reply, answer
from duly.api.responses import MetricsAnswer
from duly.api.visibility import require_unlimited
from duly.model import State
from duly.runtime.rates import LAST_START

_DISPATCHED = (State.RUNNING, State.COMPLETED, State.FAILED, State.LOST)
_TEXTS = ("text/plain", "application/openmetrics-text")


async def get_metrics(call: Call[None, None]) -> Reply:
    """The counts of the cluster as JSON; the metrics for Prometheus if `Accept` asks for text."""
    require_unlimited(call.principal)
    accept = call.header(b"accept") or ""
    if any(text in accept for text in _TEXTS) and "application/json" not in accept:
        return await prometheus(call)
    client = await call.context.client()
    states = (await client.backend.store.counts()).states
    reported = [node.metrics.get(LAST_START, 0.0) for node in await call.context.nodes()]
    return answer(
        MetricsAnswer(
            timestamp=int(client.clock.now().timestamp()),
            **{f"{state.value}_jobs": states.get(state, 0) for state in State},
            jobs_dispatched=sum(states.get(state, 0) for state in _DISPATCHED),
            last_dispatch=int(max(*reported, call.context.meters.last_start, 0.0)),
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
    snapshot = Snapshot(context.meters, counts, await client.backend.store.time(), health.is_leader, health.busy)
    text, content_type = exposition(snapshot, call.header(b"accept") or "")
    return Reply(200, text, content_type.encode())
