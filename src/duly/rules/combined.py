"""Combined schedules: several schedules as one, and schedules without the instants that calendars exclude.

Pure values like `Cron`: they compute due instants from their parts. A search ends within a bound, also if everything
is excluded: then there is no due instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, final
from zoneinfo import ZoneInfo

from duly.errors import InvalidSchedule, shown
from duly.model import CustomSpec, sanitize
from duly.model.job import ExcludingSpec, PartSpec, UnionSpec
from duly.rules import exclusion, schedules, zones
from duly.rules.calendars import Calendar
from duly.rules.exclusion import Closure, Prepared
from duly.rules.schedules import Cron, Schedule, ScheduleValue

MOST_PARTS = 50
MOST_CALENDARS = 20

# Each step of a search passes one excluded stretch, such as a weekend. 100 years have 5,218 weekends; a schedule that
# is excluded 12,000 times in a row, which takes half a second to find out, is never due.
_MOST_STEPS = 12_000
_FARTHEST = timedelta(days=365.25 * zones.GIVE_UP_YEARS)
_RECENT = datetime(2025, 1, 1, tzinfo=UTC)  # zones had other rules before: Samoa was on the other side of the date line
_TICK = timedelta(microseconds=1)
_MOST_KIND = 200


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Union(ScheduleValue):
    """Due whenever one of its parts is; once where several are. `a | b` is the same as `Union(a, b)`.

    The parts must have the same jitter. A `Once` whose time has passed when the job is registered is not run.
    """

    parts: tuple[Schedule, ...]
    jitter: timedelta

    def __init__(self, *parts: Schedule) -> None:
        flat = tuple(each for part in parts for each in (part.parts if isinstance(part, Union) else (part,)))
        if not 1 <= len(flat) <= MOST_PARTS:
            raise InvalidSchedule(f"a union of {len(flat)} schedules", hint=f"give 1 to {MOST_PARTS}")
        for each in flat:
            schedules.require_schedule(each)
        jitters = {schedules.jitter_of(each) for each in flat}
        if len(jitters) > 1:
            raise InvalidSchedule("the schedules of a union have different jitter", hint="give all of them the same")
        schedules.assign(self, parts=flat, jitter=jitters.pop())

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts)) if len(self.parts) > 1 else f"Union({self.parts[0]!r})"

    @property
    def goes_back(self) -> bool:
        """Whether `previous_run` works: every part has it."""
        return all(map(schedules.goes_back, self.parts))

    def next_run(self, after: datetime) -> datetime | None:
        """The first due instant strictly after `after`, or None when there is none any more."""
        low = schedules.in_utc(after, "after")
        return min((due for each in self.parts if (due := schedules.step(each, low))), default=None)

    def previous_run(self, at: datetime) -> datetime | None:
        """The latest due instant that is not after `at`, or None when there is none yet."""
        high = _high(self, at)
        return max((due for each in self.parts if (due := _latest(each, high))), default=None)

    def describe(self) -> str:
        """The schedule in plain words."""
        return "; or ".join(map(_words, self.parts))

    def note(self, instant: datetime) -> str | None:
        """How a clock change affects a due instant, in one sentence; None if it does not."""
        parts = [each for each in self.parts if isinstance(each, ScheduleValue)]
        return next((found for each in parts if (found := each.note(instant))), None)

    def closures(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, Closure]]:
        """As `Excluding.closures`, of all parts; without instants at which another part is due."""
        for each in self.parts:
            for due, closed in closures(each, after, until):
                if not is_due(self, due):
                    yield due, closed


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Excluding(ScheduleValue):
    """Due when its schedule is, except at instants that one of the calendars excludes."""

    schedule: Schedule
    calendars: tuple[Calendar, ...]
    jitter: timedelta
    _closed: tuple[Prepared, ...] = field(compare=False)

    def __init__(self, schedule: Schedule, *calendars: Calendar) -> None:
        base, before = (schedule.schedule, schedule.calendars) if isinstance(schedule, Excluding) else (schedule, ())
        schedules.require_schedule(base)
        given = (*before, *calendars)
        for each in given:
            if not isinstance(each, Calendar):
                raise InvalidSchedule(f"{shown(each)} is not a calendar", hint="use for example Calendar.weekends()")
        if not 1 <= len(given) <= MOST_CALENDARS:
            raise InvalidSchedule(f"{len(given)} calendars", hint=f"exclude 1 to {MOST_CALENDARS}")
        zone = zone_of(base) or "UTC"
        closed = tuple(exclusion.prepared(each.bound(zone)) for each in given)
        schedules.assign(self, schedule=base, calendars=given, jitter=schedules.jitter_of(base), _closed=closed)
        if not in_code(base):
            self._refuse_empty()

    def __repr__(self) -> str:
        return f"{self.schedule!r}.excluding({', '.join(map(repr, self.calendars))})"

    @property
    def goes_back(self) -> bool:
        """Whether `previous_run` works: the schedule has it."""
        return schedules.goes_back(self.schedule)

    def next_run(self, after: datetime) -> datetime | None:
        """The first due instant strictly after `after`, or None if there is none within a hundred years."""
        low = schedules.in_utc(after, "after")
        due = schedules.step(self.schedule, low)
        for _ in range(_MOST_STEPS):
            if due is None or due - low > _FARTHEST:
                return None
            found = exclusion.closure(self._closed, due)
            if found is None:
                return due
            due = schedules.step(self.schedule, found.end - _TICK)
        return None

    def previous_run(self, at: datetime) -> datetime | None:
        """The latest due instant that is not after `at`, or None if there is none within a hundred years."""
        high = _high(self, at)
        due = _latest(self.schedule, high)
        for _ in range(_MOST_STEPS):
            if due is None or high - due > _FARTHEST:
                return None
            found = exclusion.closure(self._closed, due)
            if found is None:
                return due
            due = _latest(self.schedule, found.start - _TICK)
        return None

    def first_run(self, now: datetime) -> datetime | None:
        """The first due instant of a job that is registered now. One in the past, as of `Once`, may be excluded."""
        due = schedules.first_instant(self.schedule, now)
        if due is None or exclusion.closure(self._closed, due) is None:
            return due
        return self.next_run(max(due, schedules.in_utc(now, "now")))

    def describe(self) -> str:
        """The schedule in plain words."""
        left_out = ", ".join(exclusion.describe(each.spec) for each in self.calendars)
        return f"{_words(self.schedule)}, except {left_out}"

    def note(self, instant: datetime) -> str | None:
        """How a clock change affects a due instant, in one sentence; None if it does not."""
        return self.schedule.note(instant) if isinstance(self.schedule, ScheduleValue) else None

    def closures(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, Closure]]:
        """The excluded instants after `after` and not after `until`: the first of each excluded stretch, and why."""
        yield from closures(self.schedule, after, until)
        due = schedules.step(self.schedule, after)
        for _ in range(_MOST_STEPS):
            if due is None or due > until:
                return
            found = exclusion.closure(self._closed, due)
            if found is not None:
                yield due, found
            due = schedules.step(self.schedule, due if found is None else found.end - _TICK)

    def _refuse_empty(self) -> None:
        """Refuse a combination that is never due, such as every Sunday without weekends."""
        start = getattr(self.schedule, "start_at", None) or _RECENT
        if schedules.step(self.schedule, start - _TICK) is not None and self.next_run(start - _TICK) is None:
            raise InvalidSchedule(f"{self!r} never runs: calendars exclude every due time", hint="change one of them")


Combined = Union | Excluding


def in_code(schedule: Schedule) -> bool:
    """Whether only code can compute a schedule: a part of it is the user's own class."""
    match schedule:
        case Union():
            return any(map(in_code, schedule.parts))
        case Excluding():
            return in_code(schedule.schedule)
        case _:
            return not isinstance(schedule, ScheduleValue)


def closures(schedule: Schedule, after: datetime, until: datetime) -> Iterator[tuple[datetime, Closure]]:
    """The instants that calendars exclude from any schedule; none if it is not a combined one."""
    return schedule.closures(after, until) if isinstance(schedule, Union | Excluding) else iter(())


def excluded_at(schedule: Schedule | None, at: datetime) -> tuple[datetime, Closure] | None:
    """The instant within the second of `at` that a calendar excludes, and why; None if there is none."""
    if schedule is None:
        return None
    second = at.replace(microsecond=0)
    return next(closures(schedule, second - _TICK, second + timedelta(seconds=1) - _TICK), None)


def is_due(schedule: Schedule, at: datetime) -> bool:
    """Whether an instant is due."""
    return schedules.step(schedule, at - _TICK) == at


def zone_of(schedule: Schedule) -> str | None:
    """The time zone of a schedule: that of the first cron expression in it."""
    match schedule:
        case Cron():
            return schedule.timezone
        case Union():
            return next((zone for each in schedule.parts if (zone := zone_of(each))), None)
        case Excluding():
            return zone_of(schedule.schedule)
        case _:
            return None


def _high(schedule: Combined, at: datetime) -> datetime:
    """The upper bound of a search for an earlier instant."""
    if not schedule.goes_back:
        raise InvalidSchedule(f"{schedule!r} cannot compute earlier due times", hint="give your class a previous_run")
    return schedules.in_utc(at, "at")


def _latest(schedule: Schedule, at: datetime) -> datetime | None:
    return schedules.latest(schedule, datetime.min.replace(tzinfo=UTC), at)


def _words(schedule: Schedule) -> str:
    describe: Callable[[], str] | None = getattr(schedule, "describe", None)
    return schedules.kind_of(schedule) if describe is None else sanitize.text_of(describe(), _MOST_KIND)


# --- as plain data


def bind(schedule: ScheduleValue, timezone: str | ZoneInfo, bind_part: Callable[[Schedule], Any]) -> CustomSpec:
    """The spec of a combined schedule; `bind_part` binds a schedule that is not a combination."""
    assert isinstance(schedule, Union | Excluding)
    rule = _rule(schedule, timezone, bind_part)
    if rule is None:
        return CustomSpec(sanitize.text_of(schedule.describe(), _MOST_KIND), schedule.jitter)
    bound = from_rule(rule, schedules.from_spec)
    return CustomSpec(sanitize.text_of(bound.describe(), _MOST_KIND), schedule.jitter, rule)


def _rule(
    schedule: Combined, timezone: str | ZoneInfo, bind_part: Callable[[Schedule], Any]
) -> UnionSpec | ExcludingSpec | None:
    """None if only code can compute a part of it."""
    if isinstance(schedule, Union):
        parts = [_part(each, timezone, bind_part) for each in schedule.parts]
        found = tuple(each for each in parts if each is not None)
        return UnionSpec(found) if len(found) == len(parts) else None
    part = _part(schedule.schedule, timezone, bind_part)
    zone = zone_of(schedule.schedule) or zones.zone_key(timezone)
    return None if part is None else ExcludingSpec(part, tuple(each.bound(zone) for each in schedule.calendars))


def _part(schedule: Schedule, timezone: str | ZoneInfo, bind_part: Callable[[Schedule], Any]) -> PartSpec | None:
    if isinstance(schedule, Union | Excluding):
        return _rule(schedule, timezone, bind_part)
    spec: PartSpec | CustomSpec = bind_part(schedule)
    return None if isinstance(spec, CustomSpec) else spec


def from_rule(rule: UnionSpec | ExcludingSpec, from_part: Callable[[Any], Schedule]) -> Combined:
    """The schedule that a rule was bound from."""
    if isinstance(rule, UnionSpec):
        return Union(*(_from_part(each, from_part) for each in rule.parts))
    return Excluding(_from_part(rule.part, from_part), *map(Calendar, rule.calendars))


def _from_part(spec: PartSpec, from_part: Callable[[Any], Schedule]) -> Schedule:
    return from_rule(spec, from_part) if isinstance(spec, UnionSpec | ExcludingSpec) else from_part(spec)


def calendars_of(schedule: Schedule | None) -> Sequence[Calendar]:
    """All calendars of a schedule."""
    match schedule:
        case Union():
            return [each for part in schedule.parts for each in calendars_of(part)]
        case Excluding():
            return [*schedule.calendars, *calendars_of(schedule.schedule)]
        case _:
            return []
