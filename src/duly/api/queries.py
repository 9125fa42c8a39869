"""The query strings of the API as structs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from duly.api.requests import Instant, Name, RedriveBody
from duly.model import Cause, RunQuery, State, iso
from duly.model.published_event import PublishedEventKind

Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(min_length=1, max_length=500, description="X-Next-Cursor of the previous page")]
Tag = Annotated[str, Meta(min_length=1, max_length=128)]


StatusWord = Literal[
    "pending",
    "queued",
    "running",
    "completed",
    "failed",
    "cancelled",
    "lost",
    "skipped",
    "active",
    "paused",
    "retired",
    "finished",
]


class _PageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    due_from: Instant | None = None
    due_until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class _FilterQuery(_PageQuery, frozen=True):
    handler: Name | None = None
    queue: Name | None = None
    tag: Tag | None = None


class RunsQuery(_FilterQuery, frozen=True):
    """Which runs; all filters must match. `status` may be repeated; the times are due times."""

    status: tuple[State, ...] = ()
    job: Name | None = None
    cause: Cause | None = None


class JobsQuery(_FilterQuery, frozen=True):
    """Which jobs; with the state of a run as `status`, which runs (`name` is then the job's)."""

    status: tuple[StatusWord, ...] = ()
    name: Name | None = None

    def runs(self, states: tuple[State, ...]) -> RunsQuery:
        """The query for the runs of these states."""
        shared = {name: getattr(self, name) for name in _FilterQuery.__struct_fields__}
        return RunsQuery(status=states, job=self.name, **shared)


class JobRunsQuery(_PageQuery, frozen=True):
    """Which runs of a job."""

    status: tuple[State, ...] = ()

    def runs(self, job: str) -> RunsQuery:
        return RunsQuery(job=job, **asdict(self))


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The time to explain; now by default."""

    at: Instant | None = None


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Entries with a number larger than `after`."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 100


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events; all filters must match, and one of the kinds. `after` is the id of the last known event."""

    kind: tuple[PublishedEventKind, ...] = ()
    job: Name | None = None
    handler: Name | None = None
    queue: Name | None = None
    run: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None


def run_query(query: RunsQuery | RedriveBody) -> RunQuery:
    """The same filters for the store."""
    return RunQuery(
        job=query.job,
        handler=query.handler,
        queue=query.queue,
        states=tuple(State(each) for each in query.status),
        cause=getattr(query, "cause", None),
        due_from=query.due_from,
        due_until=query.due_until,
    )


def repeated(query: Struct) -> Mapping[str, object]:
    """The parameters of the next page: the same, without the cursor."""
    same = {key: value for key, value in asdict(query).items() if key != "cursor"}
    return {key: iso(value) if isinstance(value, datetime) else value for key, value in same.items()}
