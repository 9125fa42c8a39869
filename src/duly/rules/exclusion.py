"""Exclusion: which instants a calendar leaves out, and why.

Days, weekdays and hours are those of the wall clock in the calendar's time zone: an instant is excluded if its local
date or time is. So a day of 23 or 25 hours is excluded as a whole, and hours that happen twice are excluded twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import accumulate
from zoneinfo import ZoneInfo

from msgspec import Struct

from duly.model.calendar import CalendarSpec, DaySpan, HourSpan, TimeSpan

_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_LAST = datetime.max  # noqa: DTZ901 - local times are naive here
_WEEKEND = (5, 6)
_WORKING_DAYS = (0, 1, 2, 3, 4)
WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Closure(Struct, frozen=True):
    """A stretch of time around an instant that is excluded as a whole, and why. `end` is not part of it.

    The time before and after it may be excluded too.
    """

    start: datetime
    end: datetime
    reason: str
    calendar: str

    def __str__(self) -> str:
        return f"excluded: {self.reason} (calendar {self.calendar})"


def closure(calendars: Iterable[Prepared], at: datetime) -> Closure | None:
    """The longest stretch around an instant that one of the calendars excludes; None if none excludes the instant."""
    found = [each for calendar in calendars for each in calendar.closures(at)]
    return max(found, key=lambda each: each.end) if found else None


def describe(calendar: CalendarSpec) -> str:
    """What a calendar excludes, in a few words."""
    words = [_weekday_words(calendar.weekdays)] if calendar.weekdays else []
    words += [f"{_clock(span.start)}-{_clock(span.end)}{_on(span.weekdays)}" for span in calendar.hours]
    stretches = len(calendar.days) + len(calendar.times)
    if stretches:
        until = "" if calendar.until is None else f", known until {calendar.until}"
        words.append(f"{stretches} {'date' if stretches == 1 else 'dates'} of {calendar.name}{until}")
    return " and ".join(words) or f"nothing ({calendar.name})"


# --- what a calendar contains, prepared for searching


class _Days:
    """Spans that may overlap, by their start; those that contain a point are found without looking at all of them."""

    def __init__(self, spans: Sequence[tuple[date, date, DaySpan]]) -> None:
        self._spans = sorted(spans, key=lambda each: each[:2])
        self._starts = [start for start, _, _ in self._spans]
        self._ends = list(accumulate((end for _, end, _ in self._spans), max))

    def covering(self, day: date) -> Iterator[DaySpan]:
        place = bisect_right(self._starts, day)
        while place and self._ends[place - 1] >= day:
            place -= 1
            _, end, span = self._spans[place]
            if end >= day:
                yield span


class _Times:
    """The same for stretches of time, whose end does not belong to them."""

    def __init__(self, spans: Sequence[TimeSpan]) -> None:
        self._spans = sorted(spans, key=lambda each: (each.start, each.end))
        self._starts = [span.start for span in self._spans]
        self._ends = list(accumulate((span.end for span in self._spans), max))

    def covering(self, at: datetime) -> Iterator[TimeSpan]:
        place = bisect_right(self._starts, at)
        while place and self._ends[place - 1] > at:
            place -= 1
            if self._spans[place].end > at:
                yield self._spans[place]


class Prepared:
    """A calendar prepared for searching."""

    def __init__(self, calendar: CalendarSpec) -> None:
        self._zone = ZoneInfo(calendar.timezone or "UTC")
        self._times = _Times(calendar.times)
        self._local = bool(calendar.weekdays or calendar.days or calendar.hours)
        self._weekdays = calendar.weekdays
        self._days = _Days([(span.first, span.last, span) for span in calendar.days])
        self._hours = calendar.hours
        self._name = calendar.name

    def closures(self, at: datetime) -> Iterator[Closure]:
        """The excluded stretches that contain an instant."""
        if self._local:
            local = at.astimezone(self._zone)
            for start, end, reason in self._covering(local.replace(tzinfo=None)):
                yield Closure(_back_to(at, local, start), _on_to(at, local, end), reason, self._name)
        for span in self._times.covering(at):
            yield Closure(span.start, span.end, span.label or self._name, self._name)

    def _covering(self, wall: datetime) -> Iterator[tuple[datetime, datetime, str]]:
        """The stretches of local time that contain a local time, each with its reason."""
        today = wall.date()
        if today.weekday() in self._weekdays:
            yield _midnight(today), _next_midnight(today), _day_words(today.weekday(), self._weekdays)
        for days in self._days.covering(today):
            yield _midnight(days.first), _next_midnight(days.last), days.label or self._name
        for hours in self._hours:
            for day in (today, today - _DAY if today > date.min else today):
                start, end = _stretch(day, hours)
                if day.weekday() in hours.weekdays and start <= wall < end:
                    yield start, end, hours.label or f"{_clock(hours.start)} to {_clock(hours.end)}"


prepared = lru_cache(maxsize=1024)(Prepared)


def _stretch(day: date, hours: HourSpan) -> tuple[datetime, datetime]:
    start = datetime.combine(day, hours.start)
    if hours.start < hours.end:
        return start, datetime.combine(day, hours.end)
    return start, _LAST if day == date.max else datetime.combine(day + _DAY, hours.end)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time())


def _next_midnight(day: date) -> datetime:
    return _LAST if day == date.max else _midnight(day + _DAY)


# --- from local time back to instants


def _on_to(at: datetime, local: datetime, end: datetime) -> datetime:
    """An instant up to which the local time stays before `end`; the end itself unless clocks change on the way."""
    try:
        found = at + (end - local.replace(tzinfo=None))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
    offset, zone = local.utcoffset(), local.tzinfo
    if _offset(found, zone) == offset:
        return found
    # Clocks change before that: all instants before the change have the offset of `at`, so that they are excluded.
    low, high = at, found
    while high - low > _TICK:
        middle = low + (high - low) // 2
        low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
    return high


def _back_to(at: datetime, local: datetime, start: datetime) -> datetime:
    """An instant since which the local time has not been before `start`, as in `_on_to`."""
    try:
        found = at - (local.replace(tzinfo=None) - start)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
    offset, zone = local.utcoffset(), local.tzinfo
    if _offset(found, zone) == offset:
        return found
    low, high = found, at
    while high - low > _TICK:
        middle = low + (high - low) // 2
        low, high = (low, middle) if _offset(middle, zone) == offset else (middle, high)
    return high


def _offset(at: datetime, zone: object) -> timedelta | None:
    try:
        return at.astimezone(zone).utcoffset()  # type: ignore[arg-type]  # it comes from a datetime in that zone
    except OverflowError:
        return None


# --- words


def _day_words(weekday: int, excluded: tuple[int, ...]) -> str:
    if excluded == _WEEKEND:
        return "weekend"
    return "working day" if excluded == _WORKING_DAYS else WEEKDAY_NAMES[weekday]


def _weekday_words(weekdays: tuple[int, ...]) -> str:
    if weekdays == _WEEKEND:
        return "weekends"
    if weekdays == _WORKING_DAYS:
        return "Monday to Friday"
    return ", ".join(f"{WEEKDAY_NAMES[day]}s" for day in weekdays)


def _on(weekdays: tuple[int, ...]) -> str:
    return "" if len(weekdays) == len(WEEKDAY_NAMES) else f" on {_weekday_words(weekdays)}"


def _clock(at: time) -> str:
    return f"{at:%H:%M:%S}".removesuffix(":00")
