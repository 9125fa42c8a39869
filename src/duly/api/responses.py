"""Answers: what callers get, as structs. They are the response half of the OpenAPI document.

Instants are ISO 8601 with six decimals and Z, always; payloads and results are put in as they are stored.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from duly.model import (
    Attempt,
    Cause,
    CronSpec,
    Delivery,
    Depth,
    EverySpec,
    Failure,
    JobStatus,
    Misfire,
    Node,
    OnceSpec,
    Origin,
    OutcomeKind,
    Overlap,
    Progress,
    RetrySpec,
    Role,
    Run,
    ScheduleSpec,
    State,
    iso,
)
from duly.rules.explain import Explanation
from duly.scheduler.audit_check import Recorded
from duly.scheduler.views import JobView

Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


def instant(at: datetime | None) -> str | None:
    return None if at is None else iso(at)


class Accepted(Struct, frozen=True, omit_defaults=True):
    """A submitted run as it was accepted: it is in the store.

    `created_at` is when that was. `deduplicated`: a run with the same key was there before, and this is that run; its
    `status` is null if it has ended and retention has purged it.
    """

    id: str
    status: State | None
    created_at: Instant
    deduplicated: bool = False


def accepted(run_id: str, created_at: datetime) -> Accepted:
    """A new run."""
    return Accepted(run_id, State.PENDING, iso(created_at))


class ErrorAnswer(Struct, frozen=True):
    type: str
    message: str
    traceback: str = ""


def _error(failure: Failure | None) -> ErrorAnswer | None:
    return None if failure is None else ErrorAnswer(failure.type, failure.message, failure.traceback)


class AttemptAnswer(Struct, frozen=True):
    """One try of a run."""

    number: int
    worker_id: str
    started_at: Instant
    ended_at: Instant
    outcome: OutcomeKind
    error: ErrorAnswer | None = None


def attempt_answer(attempt: Attempt) -> AttemptAnswer:
    return AttemptAnswer(
        number=attempt.number,
        worker_id=attempt.node,
        started_at=iso(attempt.started_at),
        ended_at=iso(attempt.ended_at),
        outcome=attempt.outcome,
        error=_error(attempt.failure),
    )


class RunAnswer(Struct, frozen=True, kw_only=True):
    """A run as it stands. `completed_at` is when it ended, whichever way."""

    id: str
    status: State
    job: str
    handler: str
    queue: str
    priority: int
    cause: Cause
    worker_id: str | None
    attempt: int
    due: Instant
    ready_at: Instant
    created_at: Instant | None
    started_at: Instant | None
    completed_at: Instant | None
    dedupe_key: str | None
    reason: str | None
    hold: str | None
    progress: Progress | None


class RunDetail(RunAnswer, frozen=True, kw_only=True):
    """A run with what went in, what came out and all its attempts."""

    payload: Raw
    result: Raw
    error: ErrorAnswer | None
    attempts: tuple[AttemptAnswer, ...]
    timeout: float | None
    retry: RetrySpec
    delivery: Delivery


_NULL = Raw(b"null")


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.state,
        "job": run.job,
        "handler": run.handler,
        "queue": run.queue,
        "priority": run.priority,
        "cause": run.cause,
        "worker_id": run.node,
        "attempt": run.attempt,
        "due": iso(run.due),
        "ready_at": iso(run.ready_at),
        "created_at": instant(run.created_at),
        "started_at": instant(run.started_at),
        "completed_at": instant(run.finished_at),
        "dedupe_key": run.dedupe_key,
        "reason": run.reason,
        "hold": run.hold,
        "progress": run.progress,
    }


def run_answer(run: Run) -> RunAnswer:
    return RunAnswer(**_run_fields(run))


def run_detail(run: Run, attempts: list[Attempt]) -> RunDetail:
    return RunDetail(
        **_run_fields(run),
        payload=Raw(run.payload),
        result=_NULL if run.result is None else Raw(run.result),
        error=_error(run.failure),
        attempts=tuple(attempt_answer(attempt) for attempt in attempts),
        timeout=run.policy.timeout,
        retry=run.policy.retry,
        delivery=run.policy.delivery,
    )


class ScheduleAnswer(Struct, frozen=True, omit_defaults=True):
    """When a job is due, in words and as it was given; `kind` is cron, every, at or code."""

    kind: str
    words: str | None
    cron: str | None = None
    every: float | None = None
    at: Instant | None = None
    timezone: str | None = None


def _schedule(spec: ScheduleSpec | None, words: str | None) -> ScheduleAnswer | None:
    match spec:
        case None:
            return None
        case CronSpec():
            return ScheduleAnswer("cron", words, cron=spec.expression, timezone=spec.timezone)
        case EverySpec():
            return ScheduleAnswer("every", words, every=spec.interval.total_seconds())
        case OnceSpec():
            return ScheduleAnswer("at", words, at=iso(spec.at))
        case _:
            return ScheduleAnswer("code", words)


class JobAnswer(Struct, frozen=True, kw_only=True):
    """A job: its definition, whether it is planned, and what became of its runs."""

    name: str
    status: JobStatus
    handler: str
    description: str
    schedule: ScheduleAnswer | None
    payload: Raw
    queue: str
    priority: int
    tags: tuple[str, ...]
    origin: Origin
    revision: int
    next_run_at: Instant | None
    run_count: int
    last_run_at: Instant | None
    last_outcome: OutcomeKind | None
    completed: int
    failed: int
    retried: int
    average_seconds: float | None
    timeout: float | None
    retry: RetrySpec
    delivery: Delivery
    overlap: Overlap | None
    misfire: Misfire
    max_runs: int | None
    selector: dict[str, str] | None
    note: str
    created_at: Instant
    updated_at: Instant


def job_answer(view: JobView) -> JobAnswer:
    return JobAnswer(
        name=view.name,
        status=view.status,
        handler=view.handler,
        description=view.description,
        schedule=_schedule(view.schedule_spec, view.schedule),
        payload=Raw(view.payload.encode()),
        queue=view.queue,
        priority=view.priority,
        tags=view.tags,
        origin=view.origin,
        revision=view.revision,
        next_run_at=instant(view.next_run_at),
        run_count=view.run_count,
        last_run_at=instant(view.last_run_at),
        last_outcome=view.last_outcome,
        completed=view.completed,
        failed=view.failed,
        retried=view.retried,
        average_seconds=view.average_seconds,
        timeout=view.timeout,
        retry=view.retry,
        delivery=view.delivery,
        overlap=view.overlap,
        misfire=view.misfire,
        max_runs=view.max_runs,
        selector=view.selector,
        note=view.note,
        created_at=iso(view.created_at),
        updated_at=iso(view.updated_at),
    )


class CancelAnswer(Struct, frozen=True):
    """`cancelled`: it waited and is cancelled. `cancelling`: it runs, and its worker has been asked to stop."""

    id: str
    status: str


class RedriveAnswer(Struct, frozen=True):
    """How many runs wait to be run again, and how many were left as they are."""

    redriven: int
    left: int


class QueueAnswer(Struct, frozen=True):
    """What waits in a queue; `oldest_at` is since when the oldest due run waits."""

    name: str
    paused: bool
    queued: int
    pending: int
    running: int
    oldest_at: Instant | None
    oldest_seconds: float | None
    started_per_second: float
    ended_per_second: float


class QueueState(Struct, frozen=True):
    name: str
    paused: bool


def queue_answer(name: str, depth: Depth, now: datetime, started: float, ended: float) -> QueueAnswer:
    age = None if depth.oldest is None else max(0.0, (now - depth.oldest).total_seconds())
    return QueueAnswer(
        name=name,
        paused=depth.paused,
        queued=depth.queued,
        pending=depth.pending,
        running=depth.running,
        oldest_at=instant(depth.oldest),
        oldest_seconds=age,
        started_per_second=started,
        ended_per_second=ended,
    )


class NodeAnswer(Struct, frozen=True):
    """One process of the cluster."""

    id: str
    host: str
    pid: int
    started_at: Instant
    roles: tuple[Role, ...]
    queues: tuple[str, ...] | None
    handlers: tuple[str, ...]
    labels: dict[str, str]
    capacity: int
    version: str
    is_leader: bool
    metrics: dict[str, float]


def node_answer(node: Node, leader: str | None) -> NodeAnswer:
    return NodeAnswer(
        id=node.id,
        host=node.host,
        pid=node.pid,
        started_at=iso(node.started_at),
        roles=node.roles,
        queues=node.queues,
        handlers=tuple(sorted(node.handlers)),
        labels=node.labels,
        capacity=node.capacity,
        version=node.version,
        is_leader=node.id == leader,
        metrics=node.metrics,
    )


class AuditAnswer(Struct, frozen=True):
    """One administrative action; the next entry is bound to `hash`.

    `readable` is false for an entry that somebody has garbled: then only its number and its hash are known.
    """

    sequence: int
    at: Instant | None
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    previous: str
    hash: str
    readable: bool = True


def audit_answer(recorded: Recorded) -> AuditAnswer:
    deed = recorded.deed
    if deed is None:
        return AuditAnswer(recorded.sequence, None, "", "", "", None, None, "", recorded.hash, readable=False)
    return AuditAnswer(
        sequence=recorded.sequence,
        at=iso(deed.at),
        actor=deed.actor,
        action=deed.action,
        target=deed.target,
        before=deed.before,
        after=deed.after,
        previous=deed.previous,
        hash=recorded.hash,
    )


class PreviewInstant(Struct, frozen=True):
    """One due instant; `note` tells what a change of clocks has to do with it."""

    due: Instant
    local: str
    note: str | None


class PreviewAnswer(Struct, frozen=True):
    """The next instants. `complete` is false if computing them took too long: then there are fewer than asked for."""

    words: str | None
    timezone: str
    next: tuple[PreviewInstant, ...]
    complete: bool


class ExplanationAnswer(Struct, frozen=True):
    """Why a run did or did not happen: one word, the chain of reasons, and the setting that decided, if one did."""

    job: str
    at: str
    due: str | None
    verdict: str
    reasons: tuple[str, ...]
    setting: str | None
    run_id: str | None


def explanation_answer(found: Explanation) -> ExplanationAnswer:
    due = None if found.due is None else iso(found.due)
    return ExplanationAnswer(found.job, iso(found.at), due, found.verdict, found.reasons, found.setting, found.run_id)


class HealthAnswer(Struct, frozen=True):
    """How this process is.

    `timestamp` is in whole seconds since the epoch, `coordinator_health` tells whether the coordinator answers. `parts`
    are the servers of which the store is composed, each "reachable" or "away"; `reasons` say why it is not healthy.
    """

    status: str
    instance_id: str
    is_leader: bool
    coordinator_health: bool
    timestamp: int
    role: str
    draining: bool
    store: str
    parts: dict[str, str]
    leader: str | None
    reasons: tuple[str, ...]
    busy: int
    slots: int
    version: str
    authentication: str


class LeaderAnswer(Struct, frozen=True):
    current_leader: str | None
    is_leader: bool
    instance_id: str


class MetricsAnswer(Struct, frozen=True):
    """Runs by state, of the whole cluster; ended ones since the store began.

    `timestamp` and `last_dispatch` are in whole seconds since the epoch; `last_dispatch` is 0 if none is known.
    """

    timestamp: int
    pending_jobs: int
    queued_jobs: int
    running_jobs: int
    completed_jobs: int
    failed_jobs: int
    cancelled_jobs: int
    lost_jobs: int
    skipped_jobs: int
    jobs_dispatched: int
    last_dispatch: int


class Status(Struct, frozen=True):
    status: str


encode = msgspec.json.Encoder(order=None).encode
