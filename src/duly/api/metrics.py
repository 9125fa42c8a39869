"""Metrics: the cluster's counts as JSON, and all that this process counts as text for Prometheus."""

from __future__ import annotations

from duly.api.calls import Call, Reply, answer
from duly.api.responses import MetricsAnswer
from duly.api.visibility import require_unlimited
from duly.model import State
from duly.runtime.rates import LAST_START

_TEXTS = ("text/plain", "application/openmetrics-text")


async def get_metrics(call: Call[None, None]) -> Reply:
    """JSON, unless the caller's `Accept` asks for the text of Prometheus."""
    require_unlimited(call.principal)
    accept = call.header(b"accept") or ""
    if any(text in accept for text in _TEXTS) and "application/json" not in accept:
        return await prometheus(call)
    client = await call.context.client()
    states = (await client.backend.store.counts()).states
    told = [node.metrics.get(LAST_START, 0.0) for node in await call.context.nodes()]
    last = max(*told, call.context.meters.last_start, 0.0)

    def count(state: State) -> int:
        return states.get(state, 0)

    document = MetricsAnswer(
        timestamp=int(client.clock.now().timestamp()),
        pending_jobs=count(State.PENDING),
        queued_jobs=count(State.QUEUED),
        running_jobs=count(State.RUNNING),
        completed_jobs=count(State.COMPLETED),
        failed_jobs=count(State.FAILED),
        cancelled_jobs=count(State.CANCELLED),
        lost_jobs=count(State.LOST),
        skipped_jobs=count(State.SKIPPED),
        jobs_dispatched=sum(count(each) for each in (State.RUNNING, State.COMPLETED, State.FAILED, State.LOST)),
        last_dispatch=int(last),
    )
    return answer(document)


async def prometheus(call: Call[None, None]) -> Reply:
    """What this process counts, and how much waits, as a scraper reads it."""
    from duly.observe.prometheus import Snapshot, exposition  # noqa: PLC0415  # an extra

    require_unlimited(call.principal)
    context = call.context
    client = await context.client()
    counts = await client.backend.store.counts()
    health = await context.scheduler.health()
    snapshot = Snapshot(context.meters, counts, await client.backend.store.time(), health.is_leader, health.busy)
    text, content_type = exposition(snapshot, call.header(b"accept") or "")
    return Reply(200, text, content_type.encode())
