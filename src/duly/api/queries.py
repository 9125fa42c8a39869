"""The query strings of the API as structs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from duly.api.requests import Cursor, Instant, Name, RunsFilter, Tag
from duly.model import SCAN, PathEquals, RunFilter, RunOrder, RunQuery, State, iso
from duly.model.published_event import PublishedEventKind

Limit = Annotated[int, Meta(ge=1, le=1000)]

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


class RunsQuery(RunsFilter, frozen=True):
    """Which runs; all filters must match, and none of those that begin with `not_`.

    `status` and `where` may be repeated, and so may all that begin with `not_`. `where` is a path and a value, as in
    `payload.customer.id:7`. `due_from` and `due_until` are due times, `ended_from` and `ended_until` ends of runs.
    `order` is created (newest first), ended (ended runs, latest first) or ready (waiting runs, earliest first).
    """

    order: RunOrder = RunOrder.CREATED
    limit: Limit = 100
    cursor: Cursor | None = None
    scan: Annotated[int, Meta(ge=1, le=SCAN)] = SCAN


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


class LogsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines with a number larger than `after`, all or of one attempt; with `follow`, as a stream."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 200
    attempt: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    follow: Literal["true", "false"] = "false"


def run_filter(query: RunsFilter) -> RunFilter:
    """The same filters for the store."""
    same = {name: getattr(query, name) for name in _SAME}
    where = tuple(PathEquals.of(*text.split(":", 1)) for text in query.where)
    order = query.order if isinstance(query, RunsQuery) else RunOrder.CREATED
    found = RunQuery(states=query.status, where=where, order=order, none_of=tuple(_excluded(query)), **same)
    return RunFilter(found, query.tag)


_SAME = (
    *("job", "handler", "queue", "cause", "due_from", "due_until", "ended_from", "ended_until", "node", "error"),
    *("text", "key", "min_seconds", "min_late", "min_attempt", "id"),
)


def _excluded(query: RunsFilter) -> Iterator[RunQuery]:
    if query.not_status:
        yield RunQuery(states=query.not_status)
    for name in ("job", "handler", "queue", "node", "error", "text"):
        for value in getattr(query, f"not_{name}"):
            yield RunQuery(**{name: value})


def repeated(query: Struct) -> Mapping[str, object]:
    """The parameters of the next page: the same, without the cursor and what is the default of a search."""
    usual = {"order": RunOrder.CREATED, "scan": SCAN}
    same = {key: value for key, value in asdict(query).items() if key != "cursor" and value != usual.get(key, ...)}
    return {key: iso(value) if isinstance(value, datetime) else value for key, value in same.items()}
