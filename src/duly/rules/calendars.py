"""Calendars as users write them: dates, hours and weekdays on which a schedule is not due.

`Calendar` checks what it is given and becomes a `CalendarSpec`, which is stored with the job. Files and packages are
read when the calendar is created (`rules.calendar_sources`), never when runs are planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Self, final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from duly.errors import InvalidSchedule, shown
from duly.model import sanitize
from duly.model.calendar import EVERY_DAY, CalendarSpec, DaySpan, HourSpan, TimeSpan
from duly.rules import exclusion, zones

MOST_SPANS = 2_000

_MOST_LABEL = 100
_WEEKDAYS = {name[:3].lower(): number for number, name in enumerate(exclusion.WEEKDAY_NAMES)}

DateLike = date | str
Range = DateLike | tuple[DateLike, DateLike] | tuple[datetime, datetime]


@final
@dataclass(frozen=True, slots=True, repr=False)
class Calendar:
    """Times that a schedule leaves out: `Cron("0 9 * * *").excluding(Calendar.weekends())`.

    Made by its class methods. Without `timezone`, days and hours are those of the schedule's time zone. The name
    appears in `duly explain`.
    """

    spec: CalendarSpec

    def __repr__(self) -> str:
        zone = "" if self.spec.timezone is None else f", {self.spec.timezone}"
        return f"<Calendar {self.spec.name}: {exclusion.describe(self.spec)}{zone}>"

    @classmethod
    def weekends(cls, *, name: str = "weekends", timezone: str | ZoneInfo | None = None) -> Self:
        """Every Saturday and Sunday."""
        return cls._make(name, timezone, weekdays=(5, 6))

    @classmethod
    def weekdays(cls, *, name: str = "weekdays", timezone: str | ZoneInfo | None = None) -> Self:
        """Every day from Monday to Friday."""
        return cls._make(name, timezone, weekdays=(0, 1, 2, 3, 4))

    @classmethod
    def dates(
        cls,
        *ranges: Range,
        labels: Mapping[str, str] | None = None,
        name: str = "dates",
        timezone: str | ZoneInfo | None = None,
    ) -> Self:
        """Dates, ranges of dates, and ranges of times.

        A range is a pair, or a text such as "2026-12-24/2027-01-01" or "2026-12-31T18:00+01:00/2027-01-01T06:00+01:00".
        The last date is part of a range, the last instant is not. Times without an offset need `timezone`. `labels`
        says what a date is, by the text of the date or range.
        """
        zone = None if timezone is None else zones.zone_key(timezone)
        given = [(each, "") for each in ranges] + [(each, label) for each, label in (labels or {}).items()]
        spans = [_span(each, label, zone) for each, label in given]
        days = tuple(each for each in spans if isinstance(each, DaySpan))
        times = tuple(each for each in spans if isinstance(each, TimeSpan))
        return cls._make(name, zone, days=days, times=times)

    @classmethod
    def hours(
        cls,
        *ranges: str,
        weekdays: Iterable[str] = (),
        name: str = "hours",
        timezone: str | ZoneInfo | None = None,
    ) -> Self:
        """Hours of each day, such as "22:00-06:00"; with `weekdays` ("sat", "sun", …) only those that start then."""
        chosen = _weekdays(weekdays)
        return cls._make(name, timezone, hours=tuple(_hours(each, chosen) for each in ranges))

    @classmethod
    def ical(
        cls,
        source: str | Path,
        *,
        years: Sequence[int] | None = None,
        name: str | None = None,
        timezone: str | ZoneInfo | None = None,
    ) -> Self:
        """The events of an iCalendar file (a `Path`) or of its text, with their recurrences; needs `duly[calendars]`.

        Events are looked up once, now, for `years` (default: this year and the five after it). From the year after
        these on, nothing is excluded: deploy again before.
        """
        from duly.rules import calendar_sources  # noqa: PLC0415  # it imports the packages of an extra

        text = calendar_sources.read(source)
        zone = None if timezone is None else zones.zone_key(timezone)
        days, times, last = calendar_sources.events(text, calendar_sources.wanted(years), zone)
        chosen = name or (source.stem if isinstance(source, Path) else "ical")
        return cls._make(chosen, zone, days=days, times=times, until=last)

    @classmethod
    def holidays(
        cls,
        country: str,
        *,
        subdivision: str | None = None,
        years: Sequence[int] | None = None,
        name: str | None = None,
        timezone: str | ZoneInfo | None = None,
    ) -> Self:
        """The public holidays of a country, from the package `holidays`; needs `duly[calendars]`.

        The dates are looked up once, now, for `years` (default: this year and the five after it), as in `ical`.
        """
        from duly.rules import calendar_sources  # noqa: PLC0415  # it imports the package of an extra

        days, last = calendar_sources.holidays(country, subdivision, calendar_sources.wanted(years))
        chosen = name or "-".join(each for each in (country.lower(), (subdivision or "").lower()) if each)
        return cls._make(chosen, timezone, days=days, until=last)

    @classmethod
    def _make(cls, name: str, timezone: str | ZoneInfo | None, **content: Any) -> Self:
        sanitize.checked_text("name of a calendar", name, _MOST_LABEL, empty=False)
        zone = None if timezone is None else zones.zone_key(timezone)
        spans = sum(len(content.get(kind, ())) for kind in ("days", "times", "hours"))
        if spans > MOST_SPANS:
            raise InvalidSchedule(
                f"calendar {name!r} has {spans} dates", hint=f"at most {MOST_SPANS} are possible: choose fewer years"
            )
        if not spans and not content.get("weekdays"):
            raise InvalidSchedule(f"calendar {name!r} excludes nothing", hint="give at least one date or time range")
        return cls(CalendarSpec(name, zone, **content))

    def bound(self, timezone: str) -> CalendarSpec:
        """The calendar as plain data, in the given time zone unless it has its own."""
        return self.spec if self.spec.timezone is not None else replace(self.spec, timezone=timezone)


KINDS = ("weekends", "weekdays", "dates", "hours", "holidays", "ical")
_OPTIONS = {"hours": ("on",), "holidays": ("subdivision",)}


def calendar_of(table: Mapping[str, Any]) -> Calendar:
    """The calendar of a table or JSON object: one of `KINDS`, its options, `name` and `timezone`."""
    kinds = [key for key in KINDS if key in table]
    if len(kinds) != 1:
        raise InvalidSchedule(f"{shown(dict(table))} is not a calendar", hint=f"give exactly one of {', '.join(KINDS)}")
    [kind] = kinds
    allowed = (kind, *_OPTIONS.get(kind, ()), "name", "timezone")
    for key in table:
        if key not in allowed:
            raise InvalidSchedule(f"calendar: {shown(key)} does not belong to {kind}", hint=f"use {', '.join(allowed)}")
    common = {key: table[key] for key in ("name", "timezone") if key in table}
    value = table[kind]
    match kind:
        case "weekends" | "weekdays" if value is True:
            return Calendar.weekends(**common) if kind == "weekends" else Calendar.weekdays(**common)
        case "dates" if isinstance(value, Mapping):
            return Calendar.dates(labels=value, **common)
        case "dates" if isinstance(value, list | tuple):
            return Calendar.dates(*value, **common)
        case "hours" if isinstance(value, list | tuple):
            return Calendar.hours(*value, weekdays=table.get("on", ()), **common)
        case "holidays" if isinstance(value, str):
            return Calendar.holidays(value, subdivision=table.get("subdivision"), **common)
        case "ical" if isinstance(value, Path):
            return Calendar.ical(value, **common)
        case _:
            raise InvalidSchedule(f"calendar: {kind}={shown(value)}", hint=_EXAMPLES[kind])


_EXAMPLES = {
    "weekends": "write weekends = true",
    "weekdays": "write weekdays = true",
    "dates": 'write for example dates = ["2026-12-24/2027-01-01"]',
    "hours": 'write for example hours = ["22:00-06:00"]',
    "holidays": 'write for example holidays = "DE"',
    "ical": 'write the path of a file: ical = "closed.ics"',
}


def day_span(first: date, last: date, label: str = "") -> DaySpan:
    """A range of dates, checked."""
    if last < first:
        raise InvalidSchedule(f"a calendar's range {first}/{last} ends before it begins", hint="swap the dates")
    return DaySpan(first, last, sanitize.text_of(label, _MOST_LABEL))


def time_span(start: datetime, end: datetime, label: str = "") -> TimeSpan:
    """A range of instants with a time zone, checked."""
    if end <= start:
        raise InvalidSchedule(
            f"a calendar's range {start.isoformat()}/{end.isoformat()} is empty", hint="its end must be later"
        )
    return TimeSpan(start.astimezone(UTC), end.astimezone(UTC), sanitize.text_of(label, _MOST_LABEL))


def _span(given: object, label: str, zone: str | None) -> DaySpan | TimeSpan:
    if isinstance(given, str):
        first, _, last = given.partition("/")
        return _pair(_point(first, given), _point(last or first, given), given, label, zone)
    if isinstance(given, tuple | list) and len(given) == 2:
        return _pair(_point(given[0], given), _point(given[1], given), given, label, zone)
    return _pair(_point(given, given), _point(given, given), given, label, zone)


def _point(given: object, whole: object) -> date | datetime:
    if isinstance(given, date):
        return given
    if isinstance(given, str):
        text = given.strip()
        try:
            return datetime.fromisoformat(text) if "T" in text.upper() or ":" in text else date.fromisoformat(text)
        except ValueError:
            pass
    raise InvalidSchedule(
        f"{shown(whole)} is not a date, nor a range of dates or times", hint="write for example 2026-12-24/2027-01-01"
    )


def _pair(
    first: date | datetime, last: date | datetime, whole: object, label: str, zone: str | None
) -> DaySpan | TimeSpan:
    if isinstance(first, datetime) != isinstance(last, datetime):
        raise InvalidSchedule(f"{shown(whole)} has a date and a time", hint="write two dates or two times")
    if isinstance(first, datetime) and isinstance(last, datetime):
        return time_span(_aware(first, zone), _aware(last, zone), label)
    return day_span(first, last, label)


def _aware(at: datetime, zone: str | None) -> datetime:
    if at.tzinfo is not None:
        return at
    if zone is None:
        raise InvalidSchedule(
            f"a calendar has the time {at.isoformat()} without a time zone", hint="add an offset, or give timezone=…"
        )
    return zones.instant_of(at, zone)


def _hours(given: object, weekdays: tuple[int, ...]) -> HourSpan:
    start, dash, end = given.partition("-") if isinstance(given, str) else ("", "", "")
    try:
        first, last = _time(start), _time(end)
    except ValueError:
        dash = ""
    if not dash or first.tzinfo is not None or last.tzinfo is not None:
        raise InvalidSchedule(f"{shown(given)} is not a range of hours", hint="write for example 22:00-06:00")
    return HourSpan(first, last, weekdays)


def _time(text: str) -> time:
    """A time of day; 24:00 is the end of the day, which is the beginning of the next."""
    return time() if text.strip() == "24:00" else time.fromisoformat(text.strip())


def _weekdays(given: Iterable[object]) -> tuple[int, ...]:
    names: list[Any] = [given] if isinstance(given, str) else list(given)
    for each in names:
        if not isinstance(each, str) or each[:3].lower() not in _WEEKDAYS:
            raise InvalidSchedule(f"{shown(each)} is not a day of the week", hint=f"use {', '.join(_WEEKDAYS)}")
    return tuple(sorted({_WEEKDAYS[each[:3].lower()] for each in names})) or EVERY_DAY
