"""The request bodies of the API as structs. The OpenAPI document is made from them.

A field that is left out has the value of the handler's job. Durations are seconds, or text such as "10m".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from duly.errors import ConfigurationError
from duly.model import Cause, Delivery, Dst, Misfire, Overlap, RetrySpec, State, StoreLoss
from duly.model.run_log import MOST_KEPT
from duly.rules.calendars import Calendar, calendar_of
from duly.rules.combined import Union
from duly.rules.durations import seconds_of
from duly.rules.retry import RetryPolicy, Strategy
from duly.rules.schedule_text import schedule_from
from duly.rules.schedules import Cron, Every, Once, ScheduleValue
from duly.scheduler.backfills import MOST_CREATED
from duly.scheduler.submitting import LONGEST_UNIQUE

NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"
_YEARS = 100 * 366 * 86400

Instant = Annotated[
    datetime,
    Meta(tz=True, description="ISO 8601 with a zone, as in 2026-12-25T10:00:00Z, or words: `10 minutes ago`"),
]
Name = Annotated[str, Meta(pattern=NAME)]
Seconds = Annotated[float, Meta(ge=0, le=_YEARS)]
DurationText = Annotated[
    str, Meta(pattern=r"^\s*[0-9]", max_length=64, description="for example 90s, 10m, 1h30m or 500ms")
]
Duration = Seconds | DurationText
Timeout = Annotated[float, Meta(gt=0, le=366 * 86400)] | DurationText
Unique = Annotated[float, Meta(gt=0, le=LONGEST_UNIQUE)] | DurationText
Pause = Annotated[float, Meta(ge=0, le=10 * 365 * 86400)] | DurationText
Priority = Annotated[int, Meta(ge=0, le=9, description="0 to 9; larger is more urgent")]
Note = Annotated[str, Meta(max_length=1000)]
CalendarText = Annotated[str, Meta(min_length=1, max_length=100)]
RunId = Annotated[str, Meta(min_length=1, max_length=200)]
FinalState = Literal["completed", "failed", "cancelled", "lost", "skipped"]
Cursor = Annotated[str, Meta(min_length=1, max_length=500, description="X-Next-Cursor of the previous page")]
Tag = Annotated[str, Meta(min_length=1, max_length=128)]
Text = Annotated[str, Meta(min_length=1, max_length=200)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=20)]
Names = Annotated[tuple[Name, ...], Meta(max_length=20)]
Number = Annotated[float, Meta(ge=0, le=1e9)]
Where = Annotated[
    str,
    Meta(
        pattern=r"^(payload|result)(\.[^.:]{1,100}){1,10}:",
        max_length=500,
        description="for example payload.customer.id:7",
    ),
]


class RetryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How failures are retried. `max_retries` 3 means four attempts."""

    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    initial_interval: Pause = 1.0
    max_interval: Pause = 30.0
    multiplier: Annotated[float, Meta(ge=0, le=1e9)] = 2.0
    strategy: Strategy = "exponential"
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0


Retry = RetryBody | Annotated[int, Meta(ge=0, le=1_000_000)] | None


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """One run.

    A `payload` that is an object becomes the handler's keyword arguments, any other value its parameter `payload`.
    Without `handler` the server's default handler is used. For the time `unique_for`, another submission with the same
    `dedupe_key` returns the first run, whatever its state. The default is set by the server (a day, unless configured);
    null means until that run has ended. `force` accepts a handler that no live node and no job has yet: the run waits
    until a node has it. A token that is limited to queues or handlers cannot use it.
    """

    payload: Any = UNSET
    handler: Name | None = None
    priority: Priority | None = None
    dedupe_key: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    unique_for: Unique | UnsetType | None = UNSET
    schedule_at: Instant | None = None
    delay: Duration | None = None
    queue: Name | None = None
    timeout: Timeout | None = None
    retry: Retry | UnsetType = UNSET
    force: bool = False


class CalendarBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Times at which a schedule is not due: one of `weekends`, `weekdays`, `dates`, `hours` and `holidays`.

    `dates` are dates, or ranges of dates or times ("2026-12-24/2027-01-01"). `hours` are local ("22:00-06:00"), on the
    days of `on` ("sat") if given. `holidays` is a country, whose public holidays are looked up when the job is defined,
    for this year and the next five.
    """

    weekends: bool = False
    weekdays: bool = False
    dates: Annotated[tuple[CalendarText, ...], Meta(max_length=2000)] = ()
    hours: Annotated[tuple[CalendarText, ...], Meta(max_length=50)] = ()
    on: Annotated[tuple[CalendarText, ...], Meta(max_length=7)] = ()
    holidays: CalendarText | None = None
    subdivision: CalendarText | None = None
    name: CalendarText | None = None
    timezone: Annotated[str, Meta(max_length=64)] | None = None


class ScheduleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule: one of `cron`, `every`, `at` and `any`; several expressions of `any` are due whenever one of them is.

    `exclude` are calendars: the schedule is not due at the times that one of them excludes.
    """

    cron: Annotated[str, Meta(max_length=256)] | None = None
    every: Duration | None = None
    at: Instant | None = None
    any: Annotated[tuple[ScheduleText, ...], Meta(max_length=50)] = ()
    exclude: Annotated[tuple[CalendarBody, ...], Meta(max_length=20)] = ()
    timezone: Annotated[str, Meta(max_length=64)] | None = None
    dst: Dst = Dst.CRON
    jitter: Duration = 0.0


ScheduleText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=500,
        description="a cron expression, or words: `every 15 minutes`, `at 02:30 on Sunday, Europe/Berlin`",
    ),
]


class Definition(Struct, frozen=True, forbid_unknown_fields=True):
    """A recurring job. Posting it again under the same name replaces it."""

    name: Name
    schedule: ScheduleBody | ScheduleText
    handler: Name | None = None
    payload: Any = UNSET
    timezone: Annotated[str, Meta(max_length=64)] | None = None
    queue: Name = "default"
    priority: Priority = 0
    timeout: Timeout | None = None
    retry: Retry | UnsetType = UNSET
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    overlap: Overlap | None = None
    misfire: Misfire = Misfire.LATEST
    on_store_loss: StoreLoss = StoreLoss.CONTINUE
    start_at: Instant | None = None
    end_at: Instant | None = None
    max_runs: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    selector: dict[str, str] | None = None
    notify: Annotated[tuple[Name, ...], Meta(max_length=50)] | None = None
    expect_every: Duration | None = None
    keep_logs: Annotated[int, Meta(ge=0, le=MOST_KEPT)] | None = None
    description: Annotated[str, Meta(max_length=1000)] = ""
    tags: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...], Meta(max_length=50)] = ()


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    note: Note = ""


class TriggerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Without `payload` the job's payload is used."""

    payload: Any = UNSET


class RollbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Go back to the definition of `revision`, by default the previous one; with `dry_run` nothing is changed."""

    revision: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    dry_run: bool = False


class BackfillBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Due times from `start` on and before `end`, the earliest first; with `dry_run` nothing is created."""

    start: Instant
    end: Instant
    limit: Annotated[int, Meta(ge=1, le=MOST_CREATED)] = 1000
    dry_run: bool = False


class CancelBody(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Note | None = None


class RunsFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs; all filters must match, and none of those that begin with `not_`.

    `status` and `where` may be repeated, and so may all that begin with `not_`. `where` is a path and a value, as in
    `payload.customer.id:7`. `due_from` and `due_until` are due times, `ended_from` and `ended_until` ends of runs.
    """

    status: tuple[State, ...] = ()
    job: Name | None = None
    handler: Name | None = None
    queue: Name | None = None
    tag: Tag | None = None
    cause: Cause | None = None
    due_from: Instant | None = None
    due_until: Instant | None = None
    ended_from: Instant | None = None
    ended_until: Instant | None = None
    node: Text | None = None
    error: Text | None = None
    where: Annotated[tuple[Where, ...], Meta(max_length=10)] = ()
    text: Text | None = None
    key: Text | None = None
    min_seconds: Number | None = None
    min_late: Number | None = None
    min_attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    id: Text | None = None
    not_status: tuple[State, ...] = ()
    not_job: Names = ()
    not_handler: Names = ()
    not_queue: Names = ()
    not_node: Texts = ()
    not_error: Texts = ()
    not_text: Texts = ()


class ManyRuns(RunsFilter, frozen=True):
    """The runs with these ids, or those that match the filters: give one of them.

    Only runs that matched at `as_of` are changed, by default those that match at the time of the call; `POST
    /runs/count` returns an `as_of`. At most `limit` runs are changed; if the answer has a `next`, it is the `cursor` of
    the call that goes on.
    """

    ids: Annotated[tuple[RunId, ...], Meta(min_length=1, max_length=1000)] | None = None
    as_of: Instant | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    cursor: Cursor | None = None


class CancelMany(ManyRuns, frozen=True):
    """Which unfinished runs to cancel, and why. Without `status`: pending, queued and running ones."""

    reason: Note | None = None


class RedriveMany(ManyRuns, frozen=True):
    """Which failed, lost or cancelled runs to run again. Without `status`: failed ones."""


class RedriveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Without `payload` the run keeps its own."""

    payload: Any = UNSET


class PurgeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Which ended runs to delete: those of these states that ended before this time, at most `limit`."""

    status: Annotated[tuple[FinalState, ...], Meta(min_length=1, max_length=5)]
    before: Instant
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class ManyJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs of these names, or those with this tag: give one of them."""

    names: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1000)] | None = None
    tag: Tag | None = None


class PauseMany(ManyJobs, frozen=True):
    note: Note = ""


class PreviewBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule to preview."""

    schedule: ScheduleBody | ScheduleText
    timezone: Annotated[str, Meta(max_length=64)] | None = None
    count: Annotated[int, Meta(ge=1, le=1000)] = 5
    after: Instant | None = None


def seconds(given: float | str) -> float:
    """A duration in seconds."""
    return seconds_of(given) if isinstance(given, str) else float(given)


def arguments(payload: Any) -> Mapping[str, Any]:
    """A payload as keyword arguments."""
    if payload is UNSET:
        return {}
    return payload if isinstance(payload, dict) else {"payload": payload}


def retry_policy(given: Retry) -> RetryPolicy:
    """The retry policy of a body."""
    if not isinstance(given, RetryBody):
        return RetryPolicy.of(given)
    intervals = {name: seconds(getattr(given, name)) for name in ("initial_interval", "max_interval")}
    return RetryPolicy(**{**asdict(given), **intervals})


def retry_spec(given: Retry | UnsetType) -> RetrySpec | None:
    """The same as it is stored with a run; None means the job's policy."""
    return None if isinstance(given, UnsetType) else retry_policy(given).spec


def schedule(given: ScheduleBody | str, timezone: str | None) -> ScheduleValue:
    """The schedule of a body. The time zone may be in it or next to it."""
    if isinstance(given, str):
        return schedule_from(given, timezone)
    body = given
    if body.timezone is not None and timezone is not None and body.timezone != timezone:
        raise ConfigurationError(f"timezone={timezone!r} and schedule.timezone={body.timezone!r}: give one of them")
    calendars = [_calendar(each) for each in body.exclude]
    found = _without_calendars(body, body.timezone or timezone)
    return found.excluding(*calendars) if calendars else found


def _without_calendars(body: ScheduleBody, timezone: str | None) -> ScheduleValue:
    jitter = seconds(body.jitter)
    match body:
        case ScheduleBody(cron=str(expression), every=None, at=None, any=()):
            return Cron(expression, timezone=timezone, dst=body.dst, jitter=jitter)
        case ScheduleBody(cron=None, every=interval, at=None, any=()) if interval is not None:
            return Every(seconds(interval), jitter=jitter)
        case ScheduleBody(cron=None, every=None, at=datetime() as at, any=()):
            return Once(at, jitter=jitter)
        case ScheduleBody(cron=None, every=None, at=None, any=texts) if texts:
            parts = [replace(_from_text(each), dst=body.dst, jitter=body.jitter) for each in texts]
            return Union(*(_without_calendars(each, timezone) for each in parts))
        case _:
            raise ConfigurationError("schedule: expected exactly one of cron, every, at and any")


def _calendar(body: CalendarBody) -> Calendar:
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    return calendar_of({name: value for name, value in given.items() if value not in (None, False, ())})


def _from_text(text: str) -> ScheduleBody:
    first, _, rest = text.strip().partition(" ")
    return ScheduleBody(every=rest) if first.lower() == "every" else ScheduleBody(cron=text)
