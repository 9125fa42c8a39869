"""Which events are published, and in which words. A pure function: an event becomes notices, most of them one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from duly.model import Failure, Run, State, iso
from duly.model import event as events
from duly.model.notice import ErrorNotice, Notice, NoticeKind

_LONGEST_MESSAGE = 1_000

PUBLISHED = frozenset(
    {
        events.RunSubmitted,
        events.RunStarted,
        events.RunEnded,
        events.RunReleased,
        events.RunsReaped,
        events.ClaimsLost,
        events.SettlementRefused,
        events.CancelAsked,
        events.RunRedriven,
        events.JobSaved,
        events.QueuePaused,
        events.QueueResumed,
        events.LeaderElected,
        events.LeaderLost,
        events.NodeStarted,
        events.NodeStopped,
    }
)


def notices_of(event: events.Event, at: datetime, node: str) -> list[Notice]:
    """What is published of an event that `node` tells."""
    when = iso(at)
    match event:
        case events.RunStarted(run, late):
            return [
                _of_run(NoticeKind.RUN_STARTED, when, node, run, state=State.RUNNING, attempt=run.attempt, late=late)
            ]
        case events.RunEnded(run):
            return [_of_end(event, when, node)]
        case events.RunSubmitted(run):
            about = {"state": State.PENDING, "cause": run.cause, "due": iso(run.due)}
            return [_of_run(NoticeKind.RUN_SUBMITTED, when, node, run, **about)]
        case events.RunReleased(run):
            return [_of_run(NoticeKind.RUN_RELEASED, when, node, run, state=State.PENDING)]
        case events.CancelAsked(run, done):
            kind = NoticeKind.RUN_CANCELLED if done else NoticeKind.RUN_CANCELLING
            return [_of_run(kind, when, node, run, state=State.CANCELLED if done else run.state)]
        case events.RunRedriven(run):
            return [_of_run(NoticeKind.RUN_REDRIVEN, when, node, run, state=State.PENDING)]
        case events.SettlementRefused(run=run):
            return _of_runs(NoticeKind.RUN_REFUSED, when, node, [] if run is None else [run])
        case events.ClaimsLost(runs=runs):
            return _of_runs(NoticeKind.RUN_LEASE_LOST, when, node, runs)
        case events.RunsReaped(runs=runs):
            return [_of_run(NoticeKind.RUN_REAPED, when, node, run, vanished=run.node) for run in runs]
        case _:
            found = _of_others(event, when, node)
            return [] if found is None else [found]


def _of_run(kind: NoticeKind, at: str, node: str, run: Run, **about: Any) -> Notice:
    return Notice(
        kind=kind, at=at, node=node, run_id=run.id, job=run.job, queue=run.queue, handler=run.handler, **about
    )


def _of_runs(kind: NoticeKind, at: str, node: str, runs: Iterable[Run]) -> list[Notice]:
    return [_of_run(kind, at, node, run) for run in runs]


def _of_end(event: events.RunEnded, at: str, node: str) -> Notice:
    return _of_run(
        NoticeKind.RUN_ENDED,
        at,
        node,
        event.run,
        state=event.state,
        outcome=event.outcome,
        attempt=event.run.attempt,
        seconds=event.seconds,
        retry_at=None if event.retry_at is None else iso(event.retry_at),
        error=None if event.failure is None else _error(event.failure),
    )


def _error(failure: Failure) -> ErrorNotice:
    return ErrorNotice(failure.type, failure.message[:_LONGEST_MESSAGE])


def _of_others(event: events.Event, at: str, node: str) -> Notice | None:
    match event:
        case events.JobSaved(job, revision, what, queue, handler):
            kind = NoticeKind.JOB_SAVED
            return Notice(
                kind=kind, at=at, node=node, job=job, queue=queue, handler=handler, what=what, revision=revision
            )
        case events.QueuePaused(queue):
            return Notice(kind=NoticeKind.QUEUE_PAUSED, at=at, node=node, queue=queue)
        case events.QueueResumed(queue):
            return Notice(kind=NoticeKind.QUEUE_RESUMED, at=at, node=node, queue=queue)
        case events.LeaderElected(lease):
            return Notice(kind=NoticeKind.LEADER_ELECTED, at=at, node=node, shard=lease.name)
        case events.LeaderLost(shard):
            return Notice(kind=NoticeKind.LEADER_LOST, at=at, node=node, shard=shard)
        case events.NodeStarted():
            return Notice(kind=NoticeKind.NODE_STARTED, at=at, node=node)
        case events.NodeStopped():
            return Notice(kind=NoticeKind.NODE_STOPPED, at=at, node=node)
        case _:
            return None
