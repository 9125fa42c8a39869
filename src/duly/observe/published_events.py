"""Which events are published, and in which words. A pure function: an event becomes notices, most of them one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duly.model import Failure, Run, State, iso
from duly.model import event as events
from duly.model.published_event import PublishedError, PublishedEvent, PublishedEventKind

_LONGEST_MESSAGE = 1_000

PUBLISHED = frozenset(
    {
        events.RunsSubmitted,
        events.RunStarted,
        events.RunEnded,
        events.RunMissed,
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


def notices_of(event: events.Event, at: datetime, node: str, most: int) -> tuple[list[PublishedEvent], int]:
    """What is published of an event that `node` tells, at most so much; and how much more there would have been."""
    if isinstance(event, events.RunsSubmitted):
        when, runs = iso(at), event.runs[:most]
        return [_submitted(run, at, when, node) for run in runs], len(event.runs) - len(runs)
    if most <= 0:
        return [], 1
    notices = _notices(event, at, node)
    return notices[:most], max(0, len(notices) - most)


def _notices(event: events.Event, at: datetime, node: str) -> list[PublishedEvent]:
    match event:
        case events.RunStarted():
            return [_started(event, iso(at), node)]
        case events.RunEnded():
            return [_ended(event, iso(at), node)]
        case _:
            return _of_seldom(event, iso(at), node)


# The first three are told by the thousand: written out, they take half the time.


def _started(event: events.RunStarted, at: str, node: str) -> PublishedEvent:
    run = event.run
    return PublishedEvent(
        kind=PublishedEventKind.RUN_STARTED,
        at=at,
        node=node,
        run_id=run.id,
        job=run.job,
        queue=run.queue,
        handler=run.handler,
        state=State.RUNNING,
        attempt=run.attempt,
        late=event.late,
    )


def _ended(event: events.RunEnded, at: str, node: str) -> PublishedEvent:
    run = event.run
    return PublishedEvent(
        kind=PublishedEventKind.RUN_ENDED,
        at=at,
        node=node,
        run_id=run.id,
        job=run.job,
        queue=run.queue,
        handler=run.handler,
        state=event.state,
        outcome=event.outcome,
        attempt=run.attempt,
        seconds=event.seconds,
        retry_at=None if event.retry_at is None else iso(event.retry_at),
        error=None if event.failure is None else _error(event.failure),
    )


def _error(failure: Failure) -> PublishedError:
    return PublishedError(failure.type, failure.message[:_LONGEST_MESSAGE])


def _submitted(run: Run, at: datetime, when: str, node: str) -> PublishedEvent:
    return PublishedEvent(
        kind=PublishedEventKind.RUN_SUBMITTED,
        at=when,
        node=node,
        run_id=run.id,
        job=run.job,
        queue=run.queue,
        handler=run.handler,
        state=State.PENDING,
        cause=run.cause,
        due=iso(run.due) if run.due > at else None,
    )


def _of_seldom(event: events.Event, at: str, node: str) -> list[PublishedEvent]:
    match event:
        case events.RunMissed(run):
            return [_of_run(PublishedEventKind.RUN_SKIPPED, at, node, run, state=State.SKIPPED)]
        case events.RunReleased(run):
            return [_of_run(PublishedEventKind.RUN_RELEASED, at, node, run, state=State.PENDING)]
        case events.CancelAsked(run, done):
            kind = PublishedEventKind.RUN_CANCELLED if done else PublishedEventKind.RUN_CANCELLING
            return [_of_run(kind, at, node, run, state=State.CANCELLED if done else run.state)]
        case events.RunRedriven(run):
            return [_of_run(PublishedEventKind.RUN_REDRIVEN, at, node, run, state=State.PENDING)]
        case events.SettlementRefused(run=run):
            return [] if run is None else [_of_run(PublishedEventKind.RUN_REFUSED, at, node, run)]
        case events.ClaimsLost(runs=runs):
            return [_of_run(PublishedEventKind.RUN_LEASE_LOST, at, node, run) for run in runs]
        case events.RunsReaped(runs=runs):
            return [_of_run(PublishedEventKind.RUN_REAPED, at, node, run, vanished=run.node) for run in runs]
        case _:
            found = _of_others(event, at, node)
            return [] if found is None else [found]


def _of_run(kind: PublishedEventKind, at: str, node: str, run: Run, **about: Any) -> PublishedEvent:
    return PublishedEvent(
        kind=kind, at=at, node=node, run_id=run.id, job=run.job, queue=run.queue, handler=run.handler, **about
    )


def _of_others(event: events.Event, at: str, node: str) -> PublishedEvent | None:
    match event:
        case events.JobSaved(job, revision, what, queue, handler):
            kind = PublishedEventKind.JOB_SAVED
            return PublishedEvent(
                kind=kind, at=at, node=node, job=job, queue=queue, handler=handler, what=what, revision=revision
            )
        case events.QueuePaused(queue):
            return PublishedEvent(kind=PublishedEventKind.QUEUE_PAUSED, at=at, node=node, queue=queue)
        case events.QueueResumed(queue):
            return PublishedEvent(kind=PublishedEventKind.QUEUE_RESUMED, at=at, node=node, queue=queue)
        case events.LeaderElected(lease):
            return PublishedEvent(kind=PublishedEventKind.LEADER_ELECTED, at=at, node=node, shard=lease.name)
        case events.LeaderLost(shard):
            return PublishedEvent(kind=PublishedEventKind.LEADER_LOST, at=at, node=node, shard=shard)
        case events.NodeStarted():
            return PublishedEvent(kind=PublishedEventKind.NODE_STARTED, at=at, node=node)
        case events.NodeStopped():
            return PublishedEvent(kind=PublishedEventKind.NODE_STOPPED, at=at, node=node)
        case _:
            return None
