"""The responses of the API as structs. The OpenAPI document is made from them.

Times are ISO 8601 with six decimals and Z; payloads and results are inserted as they are stored.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from duly import model
from duly.model import iso
from duly.model.job import is_combined
from duly.rules.combined import calendars_of
from duly.rules.definition_words import FieldChange
from duly.rules.explain import Explanation
from duly.rules.schedules import from_spec
from duly.scheduler.audit_check import Recorded
from duly.scheduler.backfills import Backfill
from duly.scheduler.views import Health, JobView

Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


A = TypeVar("A", bound=Struct)


def response(kind: type[A], source: object, **given: Any) -> A:
    """A response of this kind: the given fields, and all others from the source, with times as text."""
    copied = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in given}
    return kind(**{name: _plain(value) for name, value in (copied | given).items()})


def _plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


class Defined(Struct, frozen=True):
    """A job of an array of definitions: its revision, and whether it was created or existed already."""

    name: str
    revision: int
    created: bool


class Accepted(Struct, frozen=True, omit_defaults=True):
    """A submitted run that is in the store since `created_at`.

    `deduplicated` is true if this is an earlier run with the same key; its `status` is null if it has ended and
    retention has purged it.
    """

    id: str
    status: model.State | None
    created_at: Instant
    deduplicated: bool = False


_iso_of_batch = lru_cache(maxsize=16)(iso)  # runs that were stored together have the same time


def accepted(run_id: str, created_at: datetime) -> Accepted:
    """A new run."""
    return Accepted(run_id, model.State.PENDING, _iso_of_batch(created_at))


class ErrorAnswer(Struct, frozen=True):
    type: str
    message: str
    traceback: str = ""


def _error(failure: model.Failure | None) -> ErrorAnswer | None:
    return None if failure is None else ErrorAnswer(failure.type, failure.message, failure.traceback)


class AttemptAnswer(Struct, frozen=True):
    """One attempt of a run."""

    number: int
    worker_id: str
    started_at: Instant
    ended_at: Instant
    outcome: model.OutcomeKind
    error: ErrorAnswer | None = None


def attempt_answer(attempt: model.Attempt) -> AttemptAnswer:
    return response(AttemptAnswer, attempt, worker_id=attempt.node, error=_error(attempt.failure))


class RunAnswer(Struct, frozen=True, kw_only=True):
    """The current state of a run. `completed_at` is the time of its end, with any outcome."""

    id: str
    status: model.State
    job: str
    handler: str
    queue: str
    priority: int
    cause: model.Cause
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
    progress: model.Progress | None


class RunDetail(RunAnswer, frozen=True, kw_only=True):
    """A run with its payload, its result and all its attempts."""

    payload: Raw
    result: Raw
    error: ErrorAnswer | None
    attempts: tuple[AttemptAnswer, ...]
    timeout: float | None
    retry: model.RetrySpec
    delivery: model.Delivery


class LogLineAnswer(Struct, frozen=True):
    """One line of a run's log. `number` grows over all attempts; `source` is log, stdout or stderr."""

    number: int
    attempt: int
    at: Instant
    source: model.LineSource
    level: str
    logger: str
    text: str


def log_line_answer(line: model.LogLine) -> LogLineAnswer:
    return response(LogLineAnswer, line)


_NULL = Raw(b"null")


def _run_fields(run: model.Run) -> dict[str, Any]:
    """The fields that have another name in a run."""
    return {"status": run.state, "worker_id": run.node, "completed_at": run.finished_at}


def run_answer(run: model.Run) -> RunAnswer:
    return response(RunAnswer, run, **_run_fields(run))


def run_detail(run: model.Run, attempts: list[model.Attempt]) -> RunDetail:
    return response(
        RunDetail,
        run,
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
    """A schedule in words and as it was defined; `kind` is cron, every, at, combined or code.

    `exclude` names the calendars of a combined schedule.
    """

    kind: str
    words: str | None
    cron: str | None = None
    every: float | None = None
    at: Instant | None = None
    timezone: str | None = None
    exclude: tuple[str, ...] = ()


def _schedule(spec: model.ScheduleSpec | None, words: str | None) -> ScheduleAnswer | None:
    match spec:
        case None:
            return None
        case model.CronSpec():
            return ScheduleAnswer("cron", words, cron=spec.expression, timezone=spec.timezone)
        case model.EverySpec():
            return ScheduleAnswer("every", words, every=spec.interval.total_seconds())
        case model.OnceSpec():
            return ScheduleAnswer("at", words, at=iso(spec.at))
        case model.CustomSpec() if is_combined(spec):
            names = tuple(dict.fromkeys(each.spec.name for each in calendars_of(from_spec(spec))))
            return ScheduleAnswer("combined", words, exclude=names)
        case _:
            return ScheduleAnswer("code", words)


class JobAnswer(Struct, frozen=True, kw_only=True):
    """A job: its definition, its status and the counts of its runs."""

    name: str
    status: model.JobStatus
    handler: str
    description: str
    schedule: ScheduleAnswer | None
    payload: Raw
    queue: str
    priority: int
    tags: tuple[str, ...]
    origin: model.Origin
    revision: int
    next_run_at: Instant | None
    run_count: int
    last_run_at: Instant | None
    last_outcome: model.OutcomeKind | None
    completed: int
    failed: int
    retried: int
    average_seconds: float | None
    timeout: float | None
    retry: model.RetrySpec
    delivery: model.Delivery
    overlap: model.Overlap | None
    misfire: model.Misfire
    max_runs: int | None
    selector: dict[str, str] | None
    notify: tuple[str, ...] | None
    expect_every: float | None
    note: str
    created_at: Instant
    updated_at: Instant


def job_answer(view: JobView) -> JobAnswer:
    schedule = _schedule(view.schedule_spec, view.schedule)
    return response(JobAnswer, view, schedule=schedule, payload=Raw(view.payload.encode()))


class RevisionAnswer(Struct, frozen=True):
    """A version of a job's definition: who wrote it and when, and how it differs from the version before it.

    `first` says that no version before it is known.
    """

    revision: int
    at: Instant
    by: str | None
    current: bool
    first: bool
    restored: bool
    changes: tuple[FieldChange, ...]


class RollbackAnswer(Struct, frozen=True):
    """The job has the definition of revision `to` again, as `revision`; `changes` says what that changed.

    `job_file` names the file that defines the job: when it is applied again, its definition counts again.
    """

    job: str
    to: int
    revision: int
    changes: tuple[FieldChange, ...]
    job_file: str | None
    dry_run: bool


class BackfillAnswer(Struct, frozen=True):
    """How many runs were created, for due times without a record (`missing`) and skipped ones (by reason).

    Of the missing ones, `unsure` may have run before retention deleted the record. `present` counts due times that keep
    their run, by its status. `reached` is the first due time that was not looked at, because a limit was reached.
    Due times from `planned_from` on are left to the leader, which has not planned them yet.
    """

    job: str
    start: Instant
    end: Instant
    created: int
    missing: int
    unsure: int
    skipped: dict[str, int]
    present: dict[str, int]
    samples: tuple[Instant, ...]
    last: Instant | None
    reached: Instant | None
    planned_from: Instant | None
    dry_run: bool


def backfill_answer(found: Backfill) -> BackfillAnswer:
    return response(BackfillAnswer, found, samples=tuple(iso(at) for at in found.samples))


class CancelAnswer(Struct, frozen=True):
    """`cancelled`: the run was waiting. `cancelling`: it is running, and its worker has been asked to stop."""

    id: str
    status: str


class RunCountAnswer(Struct, frozen=True):
    """How many runs match at `as_of`: send it with the same filter to change these runs and no others.

    If `exact` is false there may be more: counting stopped at 10,000, or the search at `searched_to`. `samples` are
    five of them, the newest first, `jobs` the names of up to twenty of their jobs.
    """

    count: int
    exact: bool
    samples: tuple[RunAnswer, ...]
    jobs: tuple[str, ...]
    as_of: Instant
    searched_to: Instant | None


class BulkCancelAnswer(Struct, frozen=True, omit_defaults=True):
    """How many runs were cancelled, how many are running and were asked to stop, and how many were left unchanged.

    `next` is the cursor of the call that goes on, if the search has not come to its end.
    """

    cancelled: int
    cancelling: int
    left: int
    next: str | None = None


class RedriveAnswer(Struct, frozen=True, omit_defaults=True):
    """How many runs will run again, and how many were left unchanged.

    `next` is the cursor of the call that goes on, if the search has not come to its end.
    """

    redriven: int
    left: int
    next: str | None = None


class PurgeAnswer(Struct, frozen=True):
    """How many runs were deleted, and whether there may be more."""

    purged: int
    more: bool


class ManyJobsAnswer(Struct, frozen=True):
    """The names of the jobs that were changed, of those that were like this before, and of those that do not exist."""

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    unknown: tuple[str, ...]


class QueueAnswer(Struct, frozen=True):
    """The runs in a queue; `oldest_at` is the time since which the oldest due run has been waiting.

    The numbers of the states in `at_least` are lower bounds: there may be more.
    """

    name: str
    paused: bool
    queued: int
    pending: int
    running: int
    at_least: tuple[model.State, ...]
    oldest_at: Instant | None
    oldest_seconds: float | None
    started_per_second: float
    ended_per_second: float


class QueueState(Struct, frozen=True):
    name: str
    paused: bool


def queue_answer(name: str, depth: model.Depth, now: datetime, started: float, ended: float) -> QueueAnswer:
    return response(
        QueueAnswer,
        depth,
        name=name,
        at_least=tuple(sorted(depth.at_least)),
        oldest_at=depth.oldest,
        oldest_seconds=None if depth.oldest is None else max(0.0, (now - depth.oldest).total_seconds()),
        started_per_second=started,
        ended_per_second=ended,
    )


class NodeAnswer(Struct, frozen=True):
    """One process of the cluster."""

    id: str
    host: str
    pid: int
    started_at: Instant
    roles: tuple[model.Role, ...]
    queues: tuple[str, ...] | None
    handlers: tuple[str, ...]
    labels: dict[str, str]
    capacity: int
    version: str
    is_leader: bool
    shards: tuple[str, ...]
    metrics: dict[str, float]


def node_answer(node: model.Node, health: Health) -> NodeAnswer:
    """A node; `shards` are those that it leads, where there are several."""
    led = tuple(shard for shard, leader in health.shards.items() if leader == node.id)
    handlers = tuple(sorted(node.handlers))
    return response(NodeAnswer, node, handlers=handlers, is_leader=node.id == health.leader, shards=led)


class AuditAnswer(Struct, frozen=True):
    """One administrative action. The next entry contains its `hash`.

    `readable` is false for a damaged entry, of which only the number and the hash are known.
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
    return response(AuditAnswer, deed, sequence=recorded.sequence, hash=recorded.hash, readable=True)


class PreviewInstant(Struct, frozen=True):
    """One due time; `note` says how a clock change affects it."""

    due: Instant
    local: str
    note: str | None


class PreviewAnswer(Struct, frozen=True):
    """The next due times. `complete` is false if computing them took too long: then some are missing."""

    words: str | None
    timezone: str
    next: tuple[PreviewInstant, ...]
    complete: bool


class ExplanationAnswer(Struct, frozen=True):
    """Why a run did or did not happen: a verdict, the reasons, and the setting that decided, if there is one."""

    job: str
    at: str
    due: str | None
    verdict: str
    reasons: tuple[str, ...]
    setting: str | None
    run_id: str | None


def explanation_answer(found: Explanation) -> ExplanationAnswer:
    return response(ExplanationAnswer, found)


class HealthAnswer(Struct, frozen=True):
    """The health of this process.

    `timestamp` is in whole seconds since the epoch; `coordinator_health` is true if the coordinator can be reached.
    `parts` are the servers of the store, each "reachable" or "away"; `reasons` say why the process is not healthy.
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


class LeaderAnswer(Struct, frozen=True, omit_defaults=True):
    """The leader of the cluster; `shards` names the leader of each planning shard where there are several."""

    current_leader: str | None
    is_leader: bool
    instance_id: str
    shards: dict[str, str | None] = {}


class MetricsAnswer(Struct, frozen=True):
    """The runs of the cluster by state; ended runs are counted since the store was created.

    `timestamp` and `last_dispatch` are in whole seconds since the epoch; `last_dispatch` is 0 if it is unknown. The
    numbers of the states in `at_least` are lower bounds: there may be more.
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
    at_least: tuple[model.State, ...]


class Status(Struct, frozen=True):
    status: str


encode = msgspec.json.Encoder(order=None).encode
