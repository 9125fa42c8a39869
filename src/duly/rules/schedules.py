"""Schedules: when a job is due, as pure values.

`Cron`, `Every` and `Once` compute due instants only from their own fields and the given instant; they accept aware
datetimes and return UTC. `rules.combined` combines them. `bind` turns a schedule into the plain spec that the store
holds, `from_spec` turns it back. `rules.planning` decides which of the instants become runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol, final, runtime_checkable
from zoneinfo import ZoneInfo

from msgspec import UnsetType

from duly.errors import InvalidSchedule, shown
from duly.model import (
    LATEST,
    CronSpec,
    CustomSpec,
    Dst,
    EverySpec,
    JobRecord,
    OnceSpec,
    ScheduleSpec,
    from_micros,
    refuse_naive,
    sanitize,
    schedulable,
    to_micros,
)
from duly.rules import describe, schedule_words, zones
from duly.rules.cron import WallTimes, read, resolve

if TYPE_CHECKING:
    from duly.rules.calendars import Calendar
    from duly.rules.combined import Excluding, Union

MINIMUM_INTERVAL = timedelta(milliseconds=1)
_LONGEST_WORDS = 500

_TICK = timedelta(microseconds=1)
_ZERO = timedelta(0)


@runtime_checkable
class Schedule(Protocol):
    """The protocol of schedules: any object with this method is a schedule.

    `next_run` returns the first due instant strictly after the given one, as an aware datetime, or None when there is
    none any more. It must depend on nothing else: the same argument gives the same result on every node.
    """

    def next_run(self, after: datetime, /) -> datetime | None: ...


class ScheduleValue:
    """What `Cron`, `Every`, `Once` and their combinations share."""

    __slots__ = ()

    def next_run(self, after: datetime) -> datetime | None:
        """The first due instant strictly after `after`, or None when there is none any more."""
        raise NotImplementedError

    def previous_run(self, at: datetime) -> datetime | None:
        """The latest due instant that is not after `at`, or None when there is none yet."""
        raise NotImplementedError

    def describe(self) -> str:
        """The schedule in plain words."""
        raise NotImplementedError

    def note(self, instant: datetime) -> str | None:
        """How a clock change affects a due instant, in one sentence; None if it does not."""
        return None

    def first_run(self, now: datetime) -> datetime | None:
        """The first due instant of a job that is registered now."""
        return self.next_run(now)

    def preview(self, n: int = 5, *, after: datetime) -> list[datetime]:
        """The next `n` due instants after `after`; fewer when the schedule ends."""
        found: list[datetime] = []
        for _ in range(n):
            due = self.next_run(found[-1] if found else after)
            if due is None:
                break
            found.append(due)
        return found

    def excluding(self, *calendars: Calendar) -> Excluding:
        """The same schedule without the instants that these calendars exclude."""
        from duly.rules.combined import Excluding  # noqa: PLC0415  # it imports this module

        return Excluding(self, *calendars)

    def __or__(self, other: Schedule) -> Union:
        """Due whenever this schedule or the other one is."""
        from duly.rules.combined import Union  # noqa: PLC0415  # it imports this module

        return Union(self, other)

    def __ror__(self, other: Schedule) -> Union:
        from duly.rules.combined import Union  # noqa: PLC0415  # it imports this module

        return Union(other, self)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron(ScheduleValue):
    """Due at the wall-clock times of a cron expression in a time zone.

    `expression` may also be the words of `describe`, such as "at 09:00 on Monday to Friday".
    `timezone` is an IANA name or a `ZoneInfo`; None is the scheduler's default, bound at registration, and UTC until
    then. `dst` says what happens to fixed times that a clock change skips or repeats; see `docs/schedules.md`. `H`
    is hashed from the job's name at registration, and from an empty name until then.
    """

    expression: str
    timezone: str | None
    dst: Dst
    start_at: datetime | None
    end_at: datetime | None
    jitter: timedelta
    _times: WallTimes = field(compare=False)

    def __init__(
        self,
        expression: str,
        *,
        timezone: str | ZoneInfo | None = None,
        dst: Dst | str = Dst.CRON,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter: float | timedelta = 0,
    ) -> None:
        known = schedule_words.read_either(expression)
        start, end = _bounds(start_at, end_at)
        assign(
            self,
            expression=known.text,
            timezone=None if timezone is None else zones.zone_key(timezone),
            dst=_dst(dst),
            start_at=start,
            end_at=end,
            jitter=_duration(jitter, "jitter"),
            _times=known.times,
        )

    def __repr__(self) -> str:
        given = [] if self.timezone is None else [f"timezone={self.timezone!r}"]
        if self.dst is not Dst.CRON:
            given.append(f"dst={self.dst.value!r}")
        return f"Cron({', '.join([repr(self.expression), *given, *_common(self)])})"

    def next_run(self, after: datetime) -> datetime | None:
        """The first due instant strictly after `after`, or None when there is none any more."""
        low = in_utc(after, "after").replace(tzinfo=None)
        if low >= zones.END:
            return None
        low += _TICK
        if self.start_at is not None:
            low = max(low, self.start_at.replace(tzinfo=None))
        return self._until_end(zones.first_from(self._times, self.timezone or "UTC", self.dst, low))

    def previous_run(self, at: datetime) -> datetime | None:
        """The latest due instant that is not after `at`, or None when there is none yet."""
        high = in_utc(at, "at")
        if self.end_at is not None:
            high = min(high, self.end_at)
        found = zones.last_until(self._times, self.timezone or "UTC", self.dst, high.replace(tzinfo=None))
        return _from_start(self.start_at, None if found is None else found.replace(tzinfo=UTC))

    def describe(self) -> str:
        """The schedule in plain words."""
        known = read(self.expression)
        words = [describe.cron(known)]
        if self.timezone is not None:
            words.append(self.timezone)
        if known.times.fixed and self.dst is not Dst.CRON:
            words.append(DST_WORDS[self.dst])
        return ", ".join([*words, *_bound_words(self.start_at, self.end_at), *_jitter_words(self.jitter)])

    def note(self, instant: datetime) -> str | None:
        """How a clock change affects a due instant, in one sentence; None if it does not."""
        at = in_utc(instant, "instant")
        if self.previous_run(at) != at:
            return None
        return zones.remark(self._times, self.timezone or "UTC", self.dst, at.replace(tzinfo=None))

    def _until_end(self, due: datetime | None) -> datetime | None:
        if due is None:
            return None
        found = due.replace(tzinfo=UTC)
        return found if self.end_at is None or found <= self.end_at else None


DST_WORDS = {Dst.SKIP: "left out where clocks skip it", Dst.BOTH: "twice where clocks repeat it"}


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Every(ScheduleValue):
    """Due at a fixed interval, counted from `start_at`, which is itself due, or else from the Unix epoch.

    Instants are computed by division and never by stepping: they do not drift, and every node finds the same ones.
    """

    interval: timedelta
    start_at: datetime | None
    end_at: datetime | None
    jitter: timedelta

    def __init__(
        self,
        interval: float | timedelta | None = None,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter: float | timedelta = 0,
    ) -> None:
        units = {
            "weeks": weeks,
            "days": days,
            "hours": hours,
            "minutes": minutes,
            "seconds": seconds,
            "milliseconds": milliseconds,
        }
        start, end = _bounds(start_at, end_at)
        assign(
            self,
            interval=_interval(interval, units),
            start_at=start,
            end_at=end,
            jitter=_duration(jitter, "jitter"),
        )

    def __repr__(self) -> str:
        return f"Every({', '.join([f'seconds={_seconds(self.interval)}', *_common(self)])})"

    def next_run(self, after: datetime) -> datetime | None:
        """The first due instant strictly after `after`, or None when there is none any more."""
        low = in_utc(after, "after")
        if self.start_at is not None and low < self.start_at:
            due: datetime | None = self.start_at
        else:
            due = self._step(self._steps(low) + 1)
        return due if due is None or self.end_at is None or due <= self.end_at else None

    def previous_run(self, at: datetime) -> datetime | None:
        """The latest due instant that is not after `at`, or None when there is none yet."""
        high = in_utc(at, "at")
        if self.end_at is not None:
            high = min(high, self.end_at)
        return _from_start(self.start_at, self._step(self._steps(high)))

    def describe(self) -> str:
        """The schedule in plain words."""
        words = [describe.interval(self.interval), *_bound_words(self.start_at, self.end_at)]
        return ", ".join([" ".join(words), *_jitter_words(self.jitter)])

    def _steps(self, instant: datetime) -> int:
        """How many whole intervals lie between the anchor and the instant."""
        return (to_micros(instant) - self._anchor()) // (self.interval // _TICK)

    def _step(self, number: int) -> datetime | None:
        """The due instant of that number; None beyond the calendar."""
        try:
            return from_micros(self._anchor() + number * (self.interval // _TICK))
        except OverflowError:
            return None

    def _anchor(self) -> int:
        return 0 if self.start_at is None else to_micros(self.start_at)


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Once(ScheduleValue):
    """Due at one instant. A job registered after it runs at once."""

    at: datetime
    jitter: timedelta

    def __init__(self, at: datetime, *, jitter: float | timedelta = 0) -> None:
        assign(self, at=in_utc(at, "at"), jitter=_duration(jitter, "jitter"))

    def __repr__(self) -> str:
        return f"Once({', '.join([repr(self.at), *_jitter_given(self.jitter)])})"

    def next_run(self, after: datetime) -> datetime | None:
        """The instant, if it is strictly after `after`, else None."""
        return self.at if in_utc(after, "after") < self.at else None

    def previous_run(self, at: datetime) -> datetime | None:
        """The instant, if it is not after `at`, else None."""
        return self.at if self.at <= in_utc(at, "at") else None

    def first_run(self, now: datetime) -> datetime | None:
        """The instant, even if it has passed: such a job runs at once."""
        in_utc(now, "now")
        return self.at

    def describe(self) -> str:
        """The schedule in plain words."""
        return ", ".join([f"once at {describe.instant(self.at)}", *_jitter_words(self.jitter)])


def bind(
    schedule: Schedule,
    *,
    name: str,
    timezone: str | ZoneInfo,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> ScheduleSpec:
    """The plain spec of a schedule for the job called `name`: zone named, `H` resolved, the job's own bounds merged in.

    For an object that only code can compute, the spec names the class and keeps its `jitter`, if it has one.
    """
    match schedule:
        case Cron():
            start, end = _merged_bounds(schedule, start_at, end_at)
            expression = read(resolve(read(schedule.expression), name)).text
            zone = schedule.timezone or zones.zone_key(timezone)
            return CronSpec(expression, zone, schedule.dst, start, end, schedule.jitter)
        case Every():
            start, end = _merged_bounds(schedule, start_at, end_at)
            return EverySpec(schedule.interval, start, end, schedule.jitter)
        case Once():
            _refuse_outside(schedule, *_bounds(start_at, end_at))
            return OnceSpec(schedulable(schedule.at, f"at of job {name!r}", InvalidSchedule), schedule.jitter)
        case ScheduleValue():
            from duly.rules import combined  # noqa: PLC0415  # it imports this module

            part = partial(bind, name=name, timezone=timezone, start_at=start_at, end_at=end_at)
            return combined.bind(schedule, timezone, part)
        case _:
            return _bind_custom(schedule, bounded=start_at is not None or end_at is not None)


ScheduleInCode = Callable[[JobRecord], Schedule | None]


def schedule_of(record: JobRecord, in_code: ScheduleInCode) -> Schedule | None:
    """The schedule of a job: from its spec, or from this process's code where only code can compute it."""
    if record.spec.schedule is None:
        return None
    try:
        return from_spec(record.spec.schedule)
    except InvalidSchedule:
        found = in_code(record)
        if found is None:
            raise
        return found


def from_spec(spec: ScheduleSpec) -> ScheduleValue:
    """The schedule that a spec was bound from. A user's own class raises: only the object itself can compute it."""
    return _from_custom(spec) if isinstance(spec, CustomSpec) else _from_plain(spec)


@lru_cache(maxsize=16384)
def _from_plain(spec: CronSpec | EverySpec | OnceSpec) -> ScheduleValue:
    match spec:
        case CronSpec(expression, timezone, dst, start_at, end_at, jitter):
            return Cron(expression, timezone=timezone, dst=dst, start_at=start_at, end_at=end_at, jitter=jitter)
        case EverySpec(interval, start_at, end_at, jitter):
            return Every(interval, start_at=start_at, end_at=end_at, jitter=jitter)
        case OnceSpec(at, jitter):
            return Once(at, jitter=jitter)


@lru_cache(maxsize=512)  # a calendar may have thousands of dates
def _from_custom(spec: CustomSpec) -> ScheduleValue:
    if isinstance(spec.rule, UnsetType):
        raise InvalidSchedule(
            f"the schedule {spec.kind} can be computed only by its own code", hint="ask a node that has registered it"
        )
    from duly.rules import combined  # noqa: PLC0415  # it imports this module

    return combined.from_rule(spec.rule, from_spec)


def ready_at(uid: str, due: datetime, jitter: timedelta) -> datetime:
    """When the run for a due instant may start: up to `jitter` later, always the same for the same job and instant."""
    if not jitter:
        return due
    digest = blake2b(f"{uid}:{to_micros(due)}".encode(), digest_size=8).digest()
    # In whole numbers: a double of 64 random bits may round up to 1, and the result must stay below the full jitter.
    end = max(due, LATEST)
    try:
        return min(due + timedelta(microseconds=int.from_bytes(digest, "big") * (jitter // _TICK) >> 64), end)
    except OverflowError:
        return end


def step(schedule: Schedule, after: datetime) -> datetime | None:
    """The next due instant of any schedule, in UTC, None when there is none that a store can hold.

    An object that breaks the contract raises `InvalidSchedule`.
    """
    due = schedule.next_run(after)
    if due is None:
        return None
    found = _checked(schedule, "next_run", due)
    if found <= after:
        raise _broken(schedule, f"next_run({after.isoformat()}) returned {shown(due)}, which is not later")
    return found if found <= LATEST else None


def first_instant(schedule: Schedule, now: datetime) -> datetime | None:
    """The first due instant of a newly registered job, checked as by `step`. Only `first_run` may return a past one."""
    first = getattr(schedule, "first_run", None)
    if first is None:
        return step(schedule, now)
    due = first(now)
    found = None if due is None else _checked(schedule, "first_run", due)
    return found if found is None or found <= LATEST else None


def describe_schedule(spec: ScheduleSpec | None, schedule: Schedule | None) -> str | None:
    """A job's schedule in plain words, None for a job without one.

    `schedule` is what computes it, None where only another process has the code. For a user's class that cannot
    describe itself, its name.
    """
    if spec is None:
        return None
    words = getattr(schedule, "describe", None)
    if words is not None:
        with suppress(Exception):  # one broken class must not prevent the listing of all jobs
            return sanitize.text_of(words(), _LONGEST_WORDS)
    return f"by {spec.kind}, in code" if isinstance(spec, CustomSpec) else "a schedule that cannot be read"


def latest(schedule: Schedule, start: datetime, at: datetime, *, budget: int = 100_000) -> datetime | None:
    """The latest due instant from `start` to `at`, both included, or None.

    An object without `previous_run` is stepped through, at most `budget` times; then the last instant reached is
    returned, and the caller may continue from there.
    """
    previous = getattr(schedule, "previous_run", None)
    if previous is None or not goes_back(schedule):
        return _latest_by_steps(schedule, start, at, budget)
    due = previous(at)
    if due is None:
        return None
    found = _checked(schedule, "previous_run", due)
    if found > at:
        raise _broken(schedule, f"previous_run({at.isoformat()}) returned {shown(due)}, which is later")
    return found if found >= start else None


def goes_back(schedule: Schedule) -> bool:
    """Whether a schedule can compute earlier instants; a combination can only if all of its parts can."""
    return hasattr(schedule, "previous_run") and getattr(schedule, "goes_back", True) is not False


def _latest_by_steps(schedule: Schedule, start: datetime, at: datetime, budget: int) -> datetime | None:
    found = None
    due = step(schedule, start - _TICK)
    for _ in range(budget):
        if due is None or due > at:
            break
        found, due = due, step(schedule, due)
    return found


def _checked(schedule: Schedule, method: str, due: object) -> datetime:
    """What a user's object returned, as an instant in UTC."""
    if not isinstance(due, datetime) or due.utcoffset() is None:
        raise _broken(schedule, f"{method} returned {shown(due)} instead of an aware datetime or None")
    return in_utc(due, f"what {kind_of(schedule)}.{method} returned")


def _broken(schedule: Schedule, problem: str) -> InvalidSchedule:
    return InvalidSchedule(f"the schedule {kind_of(schedule)} is broken: {problem}", hint="correct its class")


def kind_of(schedule: object) -> str:
    """The class of a schedule, with its module."""
    return f"{type(schedule).__module__}.{type(schedule).__qualname__}"


def require_schedule(schedule: object) -> Schedule:
    """The object, if it is a schedule."""
    if isinstance(schedule, type) or not isinstance(schedule, Schedule):
        raise InvalidSchedule(f"{shown(schedule)} is not a schedule", hint=_schedule_hint(schedule))
    return schedule


def jitter_of(schedule: object) -> timedelta:
    """The jitter of any schedule."""
    return _duration(getattr(schedule, "jitter", 0), f"jitter of {kind_of(schedule)}")


def _bind_custom(schedule: object, *, bounded: bool) -> CustomSpec:
    require_schedule(schedule)
    if bounded:
        raise InvalidSchedule(
            f"start_at and end_at cannot bound a {kind_of(schedule)}",
            hint="give them to the schedule itself, whose next_run returns None after the end",
        )
    return CustomSpec(kind_of(schedule), jitter_of(schedule))


def _schedule_hint(given: object) -> str:
    match given:
        case str():
            return f"write Cron({given[:40]!r})"
        case timedelta() | int() | float():
            return "write Every(seconds=…)"
        case datetime():
            return "write Once(…)"
        case _:
            return "give a Cron, Every or Once, or an object with next_run(after)"


def _merged_bounds(
    schedule: Cron | Every, start_at: datetime | None, end_at: datetime | None
) -> tuple[datetime | None, datetime | None]:
    job_start, job_end = _bounds(start_at, end_at)
    return _bounds(_merged(schedule.start_at, job_start, "start_at"), _merged(schedule.end_at, job_end, "end_at"))


def _merged(own: datetime | None, job: datetime | None, what: str) -> datetime | None:
    if own is not None and job is not None and own != job:
        raise InvalidSchedule(
            f"{what} is {own.isoformat()} in the schedule and {job.isoformat()} in the job",
            field=what,
            hint="give it in one place",
        )
    return job if own is None else own


def _refuse_outside(once: Once, start: datetime | None, end: datetime | None) -> None:
    if (start is not None and once.at < start) or (end is not None and once.at > end):
        raise InvalidSchedule(f"{once!r} lies outside the job's start_at and end_at", hint="leave the bounds out")


def assign(value: object, /, **fields: object) -> None:
    """Fill a frozen value, once, from its constructor."""
    for name, content in fields.items():
        object.__setattr__(value, name, content)


def in_utc(instant: datetime, what: str) -> datetime:
    """The instant in UTC; at the ends of the calendar, the nearest one that UTC can represent."""
    if not isinstance(instant, datetime):
        raise InvalidSchedule(f"{what} is {shown(instant)}, not a datetime", field=what, hint="give an aware datetime")
    refuse_naive(instant, what, InvalidSchedule)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if instant.year > 5000 else datetime.min.replace(tzinfo=UTC)


def _bounds(start_at: datetime | None, end_at: datetime | None) -> tuple[datetime | None, datetime | None]:
    start = None if start_at is None else in_utc(start_at, "start_at")
    end = None if end_at is None else in_utc(end_at, "end_at")
    if start is not None and end is not None and end < start:
        raise InvalidSchedule(
            f"end_at {end.isoformat()} is before start_at {start.isoformat()}", field="end_at", hint="swap them"
        )
    return start, end


def _from_start(start: datetime | None, due: datetime | None) -> datetime | None:
    return due if due is None or start is None or due >= start else None


def _dst(policy: object) -> Dst:
    if not isinstance(policy, str) or policy not in tuple(Dst):
        raise InvalidSchedule(
            f"dst is {shown(policy)}", field="dst", hint=f"use {', '.join(repr(known.value) for known in Dst)}"
        )
    return Dst(policy)


def _interval(interval: float | timedelta | None, units: dict[str, float]) -> timedelta:
    given = {unit: count for unit, count in units.items() if count != 0}
    if interval is not None and given:
        raise InvalidSchedule(
            f"two intervals, {shown(interval)} and {shown(given)}", field="interval", hint="give one of them"
        )
    if interval is None:
        spans = [_duration(count, unit, timedelta(**{unit: 1}), least=None) for unit, count in given.items()]
        found = _total(spans)
    else:
        found = _duration(interval, "interval", least=None)
    if found < MINIMUM_INTERVAL:
        shown_as = interval if interval is not None else given or 0
        raise InvalidSchedule(f"invalid interval {shown(shown_as)}", field="interval", hint="use a millisecond or more")
    return found


def _total(spans: list[timedelta]) -> timedelta:
    try:
        return sum(spans, _ZERO)
    except OverflowError:
        raise InvalidSchedule("an interval beyond the calendar", field="interval", hint="use a shorter one") from None


def _duration(
    value: float | timedelta, what: str, unit: timedelta = timedelta(seconds=1), least: timedelta | None = _ZERO
) -> timedelta:
    """A number of units, or a timedelta, as a timedelta; anything else raises `InvalidSchedule` with its name."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise InvalidSchedule(f"{what} is {shown(value)}", field=what, hint="give a number of seconds or a timedelta")
    try:
        found = value if isinstance(value, timedelta) else value * unit
    except (OverflowError, ValueError):  # too long, infinite; not a number
        found = None
    if found is None or (least is not None and found < least):
        raise InvalidSchedule(f"{what} is {shown(value)}", field=what, hint="give 0 or more, within the calendar")
    return found


def _seconds(span: timedelta) -> float:
    whole, rest = divmod(span, timedelta(seconds=1))
    return span.total_seconds() if rest else whole


def _common(schedule: Cron | Every) -> list[str]:
    """The arguments of a repr that are not defaults."""
    bounds = {"start_at": schedule.start_at, "end_at": schedule.end_at}
    given = [f"{name}={value!r}" for name, value in bounds.items() if value is not None]
    return [*given, *_jitter_given(schedule.jitter)]


def _jitter_given(jitter: timedelta) -> list[str]:
    return [f"jitter={_seconds(jitter)}"] if jitter else []


def _bound_words(start: datetime | None, end: datetime | None) -> list[str]:
    since = [] if start is None else [f"from {describe.instant(start)}"]
    return since if end is None else [*since, f"until {describe.instant(end)}"]


def _jitter_words(jitter: timedelta) -> list[str]:
    return [f"up to {describe.duration(jitter)} later"] if jitter else []
