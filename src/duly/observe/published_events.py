"""Which events are published, and in what form. A pure function from an event to published events, usually one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from duly.model import Failure, Run, State, iso
from duly.model import event as events
from duly.model.published_event import PublishedError, PublishedEvent
from duly.model.published_event import PublishedEventKind as Kind

_LONGEST_MESSAGE = 1_000

PUBLISHED = frozenset(
    {
        events.RunsSubmitted,
        events.RunStarted,
        events.RunProgressed,
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
    """The published events for an event that `node` reports, at most `most`; and how many were left out."""
    if isinstance(event, events.RunsSubmitted):
        when, runs = iso(at), event.runs[:most]
        return [_submitted(run, at, when, node) for run in runs], len(event.runs) - len(runs)
    if most <= 0:
        return [], 1
    notices = _notices(event, iso(at), node)
    return notices[:most], max(0, len(notices) - most)


def _submitted(run: Run, at: datetime, when: str, node: str) -> PublishedEvent:
    due = iso(run.due) if run.due > at else None
    return _of_run(Kind.RUN_SUBMITTED, when, node, run, State.PENDING, cause=run.cause, due=due)


def _notices(event: events.Event, at: str, node: str) -> list[PublishedEvent]:
    match event:
        case events.RunStarted(run, late):
            return [_of_run(Kind.RUN_STARTED, at, node, run, State.RUNNING, attempt=run.attempt, late=late)]
        case events.RunProgressed(run, progress):
            return [_of_run(Kind.RUN_PROGRESSED, at, node, run, State.RUNNING, attempt=run.attempt, progress=progress)]
        case events.RunEnded(run):
            return [_ended(event, at, node, run)]
        case events.RunMissed(run):
            return [_of_run(Kind.RUN_SKIPPED, at, node, run, State.SKIPPED)]
        case events.RunReleased(run):
            return [_of_run(Kind.RUN_RELEASED, at, node, run, State.PENDING)]
        case events.CancelAsked(run, True):
            return [_of_run(Kind.RUN_CANCELLED, at, node, run, State.CANCELLED)]
        case events.CancelAsked(run):
            return [_of_run(Kind.RUN_CANCELLING, at, node, run, run.state)]
        case events.RunRedriven(run):
            return [_of_run(Kind.RUN_REDRIVEN, at, node, run, State.PENDING)]
        case events.SettlementRefused(run=run):
            return [] if run is None else [_of_run(Kind.RUN_REFUSED, at, node, run)]
        case events.ClaimsLost(runs=runs):
            return [_of_run(Kind.RUN_LEASE_LOST, at, node, run) for run in runs]
        case events.RunsReaped(runs=runs):
            return [_of_run(Kind.RUN_REAPED, at, node, run, vanished=run.node) for run in runs]
        case _:
            return _of_others(event, partial(PublishedEvent, at=at, node=node))


def _ended(event: events.RunEnded, at: str, node: str, run: Run) -> PublishedEvent:
    return _of_run(
        Kind.RUN_ENDED,
        at,
        node,
        run,
        event.state,
        outcome=event.outcome,
        attempt=run.attempt,
        seconds=event.seconds,
        retry_at=None if event.retry_at is None else iso(event.retry_at),
        error=None if event.failure is None else _error(event.failure),
    )


def _error(failure: Failure) -> PublishedError:
    return PublishedError(failure.type, failure.message[:_LONGEST_MESSAGE])


def _of_run(kind: Kind, at: str, node: str, run: Run, state: State | None = None, **about: Any) -> PublishedEvent:
    # Positional arguments: thousands of these are created, and keywords take 50 % longer.
    return PublishedEvent(kind, at, node, run.id, run.job, run.queue, run.handler, state, **about)


def _of_others(event: events.Event, make: Callable[..., PublishedEvent]) -> list[PublishedEvent]:
    match event:
        case events.JobSaved(job, revision, what, queue, handler):
            about = {"job": job, "queue": queue, "handler": handler, "what": what, "revision": revision}
            return [make(kind=Kind.JOB_SAVED, **about)]
        case events.QueuePaused(queue):
            return [make(kind=Kind.QUEUE_PAUSED, queue=queue)]
        case events.QueueResumed(queue):
            return [make(kind=Kind.QUEUE_RESUMED, queue=queue)]
        case events.LeaderElected(lease):
            return [make(kind=Kind.LEADER_ELECTED, shard=lease.name)]
        case events.LeaderLost(shard):
            return [make(kind=Kind.LEADER_LOST, shard=shard)]
        case events.NodeStarted():
            return [make(kind=Kind.NODE_STARTED)]
        case events.NodeStopped():
            return [make(kind=Kind.NODE_STOPPED)]
        case _:
            return []
