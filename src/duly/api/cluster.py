"""The cluster: queues, nodes, the leader and the audit log."""

from __future__ import annotations

from collections.abc import Sequence

from duly.api.calls import Call, Reply, answer
from duly.api.problems import Problem, not_found
from duly.api.queries import AuditQuery
from duly.api.responses import LeaderAnswer, QueueState, audit_answer, node_answer, queue_answer
from duly.api.visibility import node_seen, require_unlimited, sees_queue
from duly.model import Node, is_job_name
from duly.runtime.rates import ENDED, STARTED


async def list_queues(call: Call[None, None]) -> Reply:
    """The queues: how many runs wait in them, since when, and how many start and end per second."""
    client = await call.context.client()
    counts = await client.backend.store.counts()
    nodes = await call.context.nodes()
    now = client.clock.now()

    def rate(prefix: str, queue: str) -> float:
        return sum(node.metrics.get(f"{prefix}{queue}", 0.0) for node in nodes)

    return answer(
        [
            queue_answer(name, counts.depth(name), now, rate(STARTED, name), rate(ENDED, name))
            for name in sorted(counts.queues.keys() | _recently_used(nodes))
            if sees_queue(call.principal, name)
        ]
    )


def _recently_used(nodes: Sequence[Node]) -> set[str]:
    """The queues from which runs started recently. They may be empty now."""
    return {name.removeprefix(STARTED) for node in nodes for name in node.metrics if name.startswith(STARTED)}


async def pause_queue(call: Call[None, None]) -> Reply:
    """Start no runs of a queue until it is resumed."""
    return await _set_paused(call, paused=True)


async def resume_queue(call: Call[None, None]) -> Reply:
    """Resume a paused queue."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: Call[None, None], *, paused: bool) -> Reply:
    name = call.name
    if not is_job_name(name):
        raise Problem(422, "invalid", f"invalid queue {name!r}: expected a letter or _, then letters, digits and _ . -")
    if not sees_queue(call.principal, name):
        raise not_found("queue", name)
    client = await call.context.client()
    if await (client.pause_queue(name) if paused else client.resume_queue(name)):
        action = "pause" if paused else "resume"
        await call.record(action, f"queue {name}", {"paused": not paused}, {"paused": paused})
    return answer(QueueState(name, paused))


async def list_nodes(call: Call[None, None]) -> Reply:
    """The live nodes."""
    health = await call.context.scheduler.health()
    nodes = [node_seen(call.principal, node) for node in await call.context.scheduler.nodes()]
    return answer([node_answer(node, health) for node in nodes])


async def leader(call: Call[None, None]) -> Reply:
    """The leader, and whether it is this process."""
    await call.context.client()
    health = await call.context.scheduler.health()
    instance_id = health.node_id or call.context.instance_id
    return answer(LeaderAnswer(health.leader, health.is_leader, instance_id, health.shards))


async def audit(call: Call[AuditQuery, None]) -> Reply:
    """Administrative actions, in order."""
    require_unlimited(call.principal)
    return answer(
        [audit_answer(entry) for entry in await call.context.audit_entries(call.query.after, call.query.limit)]
    )
