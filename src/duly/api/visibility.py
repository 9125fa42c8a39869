"""What a caller may see and change whose token is limited to queues or handlers.

A job or run is inside the limits if both its queue and its handler are. For the caller, anything outside does not
exist: reading and changing it gives the same errors as if it did not exist, and its name is not revealed. A change must
be inside the limits before and after: what it replaces or starts, and what it becomes.
"""

from __future__ import annotations

from msgspec.structs import replace

from duly.api.permissions import Principal
from duly.api.problems import Problem
from duly.model import JobRecord, JobSpec, Node, Run
from duly.model.published_event import PublishedEventKind
from duly.rules.shards import is_shared
from duly.runtime.rates import ENDED, STARTED
from duly.scheduler.event_reader import ReadEvent
from duly.scheduler.views import JobView

# Events of the whole cluster, which name no job, queue or handler.
_FOR_ALL = frozenset(
    {
        PublishedEventKind.NODE_STARTED,
        PublishedEventKind.NODE_STOPPED,
        PublishedEventKind.DROPPED,
        PublishedEventKind.LEADER_ELECTED,
        PublishedEventKind.LEADER_LOST,
    }
)


def covers(principal: Principal, queue: str, handler: str) -> bool:
    """Whether this queue and this handler are inside the limits."""
    return (principal.queues is None or queue in principal.queues) and (
        principal.handlers is None or handler in principal.handlers
    )


# --- reading


def sees_run(principal: Principal, run: Run) -> bool:
    return covers(principal, run.queue, run.handler)


def sees_job(principal: Principal, job: JobView | JobSpec) -> bool:
    return covers(principal, job.queue, job.handler)


def sees_queue(principal: Principal, queue: str) -> bool:
    """A queue has runs of all handlers, so a caller that is limited to some handlers does not see it."""
    return principal.handlers is None and (principal.queues is None or queue in principal.queues)


def sees_event(principal: Principal, event: ReadEvent) -> bool:
    """A published event is visible if it is inside the limits, or if it concerns the whole cluster."""
    if not principal.limited:
        return True
    words = event.words
    if words.queue is None:
        if (words.job, words.handler, words.run_id) != (None, None, None):
            return False
        return (words.shard is None or is_shared(words.shard)) and words.kind in _FOR_ALL
    if words.shard is not None:
        return False
    if words.handler is None:
        return words.job is None and sees_queue(principal, words.queue)
    return covers(principal, words.queue, words.handler)


def node_seen(principal: Principal, node: Node) -> Node:
    """A node with only the queues and handlers that are inside the limits."""
    if not principal.limited:
        return node

    def inside(metric: str) -> bool:
        for prefix in (STARTED, ENDED):
            if metric.startswith(prefix):
                return sees_queue(principal, metric.removeprefix(prefix))
        return True

    queues = node.queues
    if queues is not None and principal.queues is not None:
        queues = tuple(queue for queue in queues if queue in principal.queues)
    elif queues is not None:
        queues = ()
    handlers = frozenset() if principal.handlers is None else node.handlers & principal.handlers
    metrics = {name: value for name, value in node.metrics.items() if inside(name)}
    return replace(node, queues=queues, handlers=handlers, metrics=metrics, labels={})


def require_unlimited(principal: Principal) -> None:
    """Refuse a limited token, for routes that concern all queues and handlers."""
    if principal.limited:
        raise Problem(403, "forbidden", "this token is limited to some queues or handlers: use one without limits")


# --- changing


def require_start(principal: Principal, name: str, alike: Run, queue: str) -> None:
    """Refuse a submission unless the handler is inside the limits in its own queue and in the given one.

    With the given queue alone, any handler could be started by naming a queue inside the limits.
    """
    if not (covers(principal, alike.queue, alike.handler) and covers(principal, queue, alike.handler)):
        raise outside(name)


def require_definition(principal: Principal, before: JobRecord | None, after: JobSpec, home: Run, named: str) -> None:
    """Refuse a definition unless its handler, the job that it replaces and the new job are inside the limits.

    The error reveals that a name is in use, because it cannot be used, but nothing about the job that has it.
    """
    if not (covers(principal, home.queue, home.handler) and covers(principal, after.queue, after.handler)):
        raise outside(named)
    if before is not None and not sees_job(principal, before.spec):
        raise Problem(409, "conflict", f"the name {after.name!r} is taken: choose another one")


def outside(name: str) -> Problem:
    """The same problem for a handler that does not exist and for one that is outside of the limits."""
    detail = f"handler {name!r}: it does not exist, or this token may not use it in this queue"
    return Problem(403, "forbidden", detail)
