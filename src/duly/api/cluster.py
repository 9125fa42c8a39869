"""The cluster: queues, nodes, the leader, the audit log; and previews of schedules."""

from __future__ import annotations

from collections.abc import Sequence

from duly.api.calls import Call, Reply, answer
from duly.api.previews import preview_of
from duly.api.problems import Problem, not_found
from duly.api.queries import AuditQuery
from duly.api.requests import PreviewBody
from duly.api.responses import (
    LeaderAnswer,
    QueueState,
    audit_answer,
    node_answer,
    queue_answer,
)
from duly.api.visibility import node_seen, require_unlimited, sees_queue
from duly.model import Depth, Node, is_job_name
from duly.runtime.rates import ENDED, STARTED


async def list_queues(call: Call[None, None]) -> Reply:
    """The queues: what waits in them, since when, and how fast they move."""
    client = await call.context.client()
    counts = await client.backend.store.counts()
    nodes = await call.context.nodes()
    now = client.clock.now()

    def rate(prefix: str, queue: str) -> float:
        return sum(node.metrics.get(f"{prefix}{queue}", 0.0) for node in nodes)

    return answer(
        [
            queue_answer(name, counts.queues.get(name, _EMPTY), now, rate(STARTED, name), rate(ENDED, name))
            for name in sorted(counts.queues.keys() | _moving(nodes))
            if sees_queue(call.principal, name)
        ]
    )


_EMPTY = Depth()


def _moving(nodes: Sequence[Node]) -> set[str]:
    """The queues from which something was started of late: they may be empty by now."""
    return {name.removeprefix(STARTED) for node in nodes for name in node.metrics if name.startswith(STARTED)}


async def pause_queue(call: Call[None, None]) -> Reply:
    """Start nothing of this queue until it is resumed."""
    return await _set_paused(call, paused=True)


async def resume_queue(call: Call[None, None]) -> Reply:
    """Let a paused queue go on."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: Call[None, None], *, paused: bool) -> Reply:
    name = call.name
    if not is_job_name(name):
        raise Problem(422, "invalid", f"queue {name!r}: a letter or _, then letters, digits and _ . - are needed")
    if not sees_queue(call.principal, name):
        raise not_found("queue", name)
    client = await call.context.client()
    if await (client.pause_queue(name) if paused else client.resume_queue(name)):
        action = "pause" if paused else "resume"
        await call.note(action, f"queue {name}", {"paused": not paused}, {"paused": paused})
    return answer(QueueState(name, paused))


async def list_nodes(call: Call[None, None]) -> Reply:
    """The nodes that are alive."""
    leader = (await call.context.scheduler.health()).leader
    nodes = [node_seen(call.principal, node) for node in await call.context.scheduler.nodes()]
    return answer([node_answer(node, leader) for node in nodes])


async def leader(call: Call[None, None]) -> Reply:
    """Who leads, and whether it is this process."""
    await call.context.client()
    health = await call.context.scheduler.health()
    return answer(LeaderAnswer(health.leader, health.is_leader, health.node_id or call.context.instance_id))


async def audit(call: Call[AuditQuery, None]) -> Reply:
    """Administrative actions, in order."""
    require_unlimited(call.principal)
    return answer([audit_answer(deed) for deed in await call.context.deeds(call.query.after, call.query.limit)])


async def preview(call: Call[None, PreviewBody]) -> Reply:
    """The next instants of an expression, with what changes of clocks do to them."""
    now = (await call.context.client()).clock.now()
    zone = call.context.scheduler.config.timezone
    return answer(await call.context.computing.run(lambda: preview_of(call.body, zone, now)))
