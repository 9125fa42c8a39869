"""Views: what the scheduler returns about jobs and about itself."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from duly.deprecation import renamed_attribute
from duly.model import (
    Delivery,
    JobRecord,
    JobStatistics,
    JobStatus,
    Misfire,
    Origin,
    OutcomeKind,
    Overlap,
    RetrySpec,
    ScheduleSpec,
)
from duly.rules.schedules import Schedule, describe_schedule


class JobView(Struct, frozen=True):
    """A job in its present state: its definition, whether it is planned, and what became of its runs.

    Of a command's `environment` only the names are shown. `next_run_at` is exact if one job was asked for; in a list it
    may be too late for a job that has many waiting runs behind those of others.
    """

    name: str
    status: JobStatus
    handler: str
    description: str
    schedule: str | None
    schedule_spec: ScheduleSpec | None
    queue: str
    priority: int
    tags: tuple[str, ...]
    origin: Origin
    revision: int
    next_run_at: datetime | None
    run_count: int
    last_run_at: datetime | None
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
    notify: tuple[str, ...] | None
    expect_every: float | None
    payload: str
    created_at: datetime
    updated_at: datetime
    note: str = ""
    job_file: str | None = None
    command: str | None = None
    cwd: str | None = None
    environment: tuple[str, ...] = ()

    fleet = renamed_attribute("fleet", "job_file")


class Upcoming(Struct, frozen=True):
    """A future run: already created, or computed from the schedule."""

    job: str
    at: datetime
    due: datetime
    run_id: str | None = None


class Health(Struct, frozen=True):
    """The health of this process.

    `status` is "healthy", "degraded" (the store or a part of it is unreachable, nobody leads, the store's clock has
    jumped, or the store lost data within the last hour; running handlers go on), "unhealthy" (services of this node
    fail repeatedly: `failing` says which, and how) or "closed"; `reasons` say why. `parts` is the state of each part of
    a composed store, by name. `unplaced` says why due runs wait to be placed, and is empty if none do. `shards` names
    the leader of each shard where there are several (None: nobody leads it), `led` are the shards that this process
    leads.
    """

    status: str
    node_id: str | None
    running: bool
    is_leader: bool
    leader: str | None
    store: str
    away_seconds: float
    busy: int
    slots: int
    parts: dict[str, str] = {}
    unplaced: str = ""
    failing: dict[str, str] = {}
    reasons: tuple[str, ...] = ()
    shards: dict[str, str | None] = {}
    led: tuple[str, ...] = ()


class ShutdownReport(Struct, frozen=True):
    """What became of the runs that a node had when it began to stop, as the store has acknowledged it.

    The handlers of `drained` runs finished, `released` runs were given back to other nodes, `interrupted` runs ended
    because they may not begin twice (at most once). `left` are none of these: the store could not be reached, and
    another node takes them over when their leases expire.
    """

    drained: int = 0
    released: int = 0
    interrupted: int = 0
    left: int = 0


def job_view(
    record: JobRecord, statistics: JobStatistics, next_run_at: datetime | None, schedule: Schedule | None
) -> JobView:
    """A record and its counters as one view."""
    spec = record.spec
    ended = statistics.run_count
    command = spec.command
    return JobView(
        name=spec.name,
        status=record.status,
        handler=spec.handler,
        description=spec.description,
        schedule=describe_schedule(spec.schedule, schedule),
        schedule_spec=spec.schedule,
        queue=spec.queue,
        priority=spec.priority,
        tags=spec.tags,
        origin=record.origin,
        revision=record.revision,
        next_run_at=next_run_at if record.status is JobStatus.ACTIVE else None,
        run_count=ended,
        last_run_at=statistics.last_run_at,
        last_outcome=statistics.last_outcome,
        completed=statistics.completed,
        failed=statistics.failed,
        retried=statistics.retried,
        average_seconds=statistics.seconds / ended if ended else None,
        timeout=spec.policy.timeout,
        retry=spec.policy.retry,
        delivery=spec.policy.delivery,
        overlap=spec.overlap,
        misfire=spec.misfire,
        max_runs=spec.max_runs,
        selector=spec.selector,
        notify=spec.notify,
        expect_every=spec.expect_every,
        payload=spec.payload.decode(errors="replace"),
        created_at=record.created_at,
        updated_at=record.updated_at,
        note=record.damage or (record.paused.note if record.paused else ""),
        job_file=record.job_file,
        command=None if command is None else str(command),
        cwd=None if command is None else command.cwd,
        environment=() if command is None else (*sorted(command.environment), *command.pass_environment),
    )
