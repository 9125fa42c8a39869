"""Visibility: what exists for a caller whose token is limited to queues or handlers. All of it is decided here.

A thing is inside the limits if its queue and its handler are. What lies outside does not exist for the caller: reading
and operating answer exactly as if it were not there, and no name of it is told. A change must be inside the limits
twice: what it replaces or starts, and what it becomes.
"""

from __future__ import annotations

from msgspec.structs import replace

from duly.api.permissions import Principal
from duly.api.problems import Problem
from duly.model import JobRecord, JobSpec, Node, Run
from duly.model.published_event import PublishedEventKind
from duly.runtime.elector import MAIN
from duly.runtime.rates import ENDED, STARTED
from duly.scheduler.event_reader import Told
from duly.scheduler.views import JobView

# What concerns the cluster as a whole, and names no job, queue or handler.
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
    """Whether something of this queue and handler is inside the limits."""
    return (principal.queues is None or queue in principal.queues) and (
        principal.handlers is None or handler in principal.handlers
    )


# --- what is


def sees_run(principal: Principal, run: Run) -> bool:
    return covers(principal, run.queue, run.handler)


def sees_job(principal: Principal, job: JobView | JobSpec) -> bool:
    return covers(principal, job.queue, job.handler)


def sees_queue(principal: Principal, queue: str) -> bool:
    """A queue holds runs of all handlers: it is not there for those who are limited to some of them."""
    return principal.handlers is None and (principal.queues is None or queue in principal.queues)


def sees_notice(principal: Principal, told: Told) -> bool:
    """Of what is published only what is known to be inside the limits, or to concern all."""
    if not principal.limited:
        return True
    words = told.words
    if words.queue is None:
        if (words.job, words.handler, words.run_id) != (None, None, None):
            return False
        return words.shard in (None, MAIN) and words.kind in _FOR_ALL
    if words.shard is not None:
        return False
    if words.handler is None:
        return words.job is None and sees_queue(principal, words.queue)
    return covers(principal, words.queue, words.handler)


def node_seen(principal: Principal, node: Node) -> Node:
    """A node with the queues and handlers that are inside the limits."""
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
    """For what concerns all queues and handlers at once."""
    if principal.limited:
        raise Problem(403, "forbidden", "this token is limited to some queues or handlers: one without is needed")


# --- what becomes


def require_start(principal: Principal, name: str, alike: Run, queue: str) -> None:
    """For work that is to be submitted: the handler must be inside the limits where it is at home, and where it goes.

    With the queue alone any handler could be started, by naming a queue of one's own.
    """
    if not (covers(principal, alike.queue, alike.handler) and covers(principal, queue, alike.handler)):
        raise outside(name)


def require_definition(principal: Principal, before: JobRecord | None, after: JobSpec, home: Run, named: str) -> None:
    """For a job that is to be defined: its handler at home, the job that it replaces, and what it becomes.

    That a name is taken cannot be hidden, since it cannot be had; by whom and for what is not said.
    """
    if not (covers(principal, home.queue, home.handler) and covers(principal, after.queue, after.handler)):
        raise outside(named)
    if before is not None and not sees_job(principal, before.spec):
        raise Problem(409, "conflict", f"the name {after.name!r} is taken: choose another one")


def outside(name: str) -> Problem:
    """The same answer for a handler that does not exist and for one that is outside of the limits."""
    detail = f"handler {name!r}: there is none of this name that this token may use, on the queue that is meant"
    return Problem(403, "forbidden", detail)
