"""Queries: what may stand behind the question mark, as structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from duly.api.requests import Instant, Name
from duly.model import Cause, RunQuery, State, iso
from duly.model.published_event import PublishedEventKind

Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(min_length=1, max_length=500, description="from X-Next-Cursor of the page before")]
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


class RunsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs; everything given must match. `status` may be given several times; times are due instants."""

    status: tuple[State, ...] = ()
    job: Name | None = None
    handler: Name | None = None
    queue: Name | None = None
    tag: Tag | None = None
    cause: Cause | None = None
    due_from: Instant | None = None
    due_until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs; with a run's state as `status`, which runs (`name` is then the job's)."""

    status: tuple[StatusWord, ...] = ()
    name: Name | None = None
    handler: Name | None = None
    queue: Name | None = None
    tag: Tag | None = None
    due_from: Instant | None = None
    due_until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class JobRunsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs of a job."""

    status: tuple[State, ...] = ()
    due_from: Instant | None = None
    due_until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The moment in question; now, unless it is given."""

    at: Instant | None = None


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Entries with a greater number than `after`."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 100


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events; everything given must match, any of several kinds. `after` is the id of the last one known."""

    kind: tuple[PublishedEventKind, ...] = ()
    job: Name | None = None
    handler: Name | None = None
    queue: Name | None = None
    run: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None


def run_query(query: RunsQuery) -> RunQuery:
    """What the store is asked for."""
    return RunQuery(
        job=query.job,
        handler=query.handler,
        queue=query.queue,
        states=query.status,
        cause=query.cause,
        due_from=query.due_from,
        due_until=query.due_until,
    )


def repeated(query: Struct) -> Mapping[str, object]:
    """What to ask for on the next page: the same, but for the cursor."""
    said = {key: value for key, value in asdict(query).items() if key != "cursor"}
    return {key: iso(value) if key.startswith("due_") and value is not None else value for key, value in said.items()}
