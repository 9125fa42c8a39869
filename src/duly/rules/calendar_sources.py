"""Where dates of calendars come from: iCalendar text and the package `holidays`.

Both are read once, when a calendar is created, for certain years. The result is stored with the job, so that nodes need
neither the file nor the package, and different versions of a package cannot make them decide differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from duly.errors import InvalidSchedule, MissingExtra, shown
from duly.model.calendar import DaySpan, TimeSpan
from duly.rules import zones
from duly.rules.calendars import MOST_SPANS, day_span, time_span

_YEARS_AHEAD = 5
_MOST_BYTES = 1 << 20
_DAY = timedelta(days=1)
_TOO_FREQUENT = ("SECONDLY", "MINUTELY", "HOURLY")


def wanted(years: Sequence[int] | None) -> range:
    """The years to look up, from the first to the last one given; by default this year and some after it."""
    if years is None:
        this = datetime.now(UTC).year
        return range(this, this + _YEARS_AHEAD + 1)
    given = sorted(years)
    if not given or not 1900 <= given[0] <= given[-1] <= 2200 or given[-1] - given[0] > 50:
        raise InvalidSchedule(f"years={shown(years)} of a calendar", hint="give up to 50 years from 1900 to 2200")
    return range(given[0], given[-1] + 1)


def read(source: str | Path) -> str:
    """The text of an iCalendar file, or the text itself."""
    if not isinstance(source, Path):
        data = source.encode(errors="replace")
    else:
        try:
            with source.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as exc:
            raise InvalidSchedule(f"the calendar {source} cannot be read: {exc.strerror}") from exc
    if len(data) > _MOST_BYTES:
        raise InvalidSchedule("an iCalendar file is larger than 1 MB", hint="keep only the events that you need")
    return data.decode("utf-8-sig", errors="replace")


def holidays(country: str, subdivision: str | None, years: range) -> tuple[tuple[DaySpan, ...], date]:
    """The public holidays of these years, and the last day that is known."""
    try:
        import holidays as package  # noqa: PLC0415  # an extra
    except ImportError as exc:
        raise MissingExtra("a calendar of public holidays", "calendars") from exc
    try:
        found = package.country_holidays(country, subdiv=subdivision, years=years)
    except (NotImplementedError, KeyError, TypeError, AttributeError) as exc:
        place = country if subdivision is None else f"{country}, {subdivision}"
        raise InvalidSchedule(
            f"no public holidays are known for {shown(place)}", hint="use an ISO 3166 code such as DE, and DE with BY"
        ) from exc
    return tuple(day_span(day, day, label) for day, label in sorted(found.items())), date(years[-1], 12, 31)


def events(text: str, years: range, zone: str | None) -> tuple[tuple[DaySpan, ...], tuple[TimeSpan, ...], date | None]:
    """The events of an iCalendar text in these years: all-day ones, timed ones, and the last day that is known.

    The last day is None if no event recurs: then all of them are known.
    """
    try:
        import recurring_ical_events  # noqa: PLC0415  # an extra
        from icalendar import Calendar as Parsed  # noqa: PLC0415
    except ImportError as exc:
        raise MissingExtra("an iCalendar file", "calendars") from exc
    try:
        parsed = Parsed.from_ical(text)
        recurs = _recurs(parsed)
        query = recurring_ical_events.of(parsed)
        found = list(_found(query, years if recurs else _all_years(parsed, years)))
    except InvalidSchedule:
        raise
    except Exception as exc:  # the packages raise many kinds of errors for a file that they cannot read
        raise InvalidSchedule(
            f"the iCalendar file cannot be read: {exc}", hint="check it with another program"
        ) from exc
    spans = [_span(event, zone) for event in found]
    days = sorted({each for each in spans if isinstance(each, DaySpan)}, key=lambda each: (each.first, each.last))
    times = sorted({each for each in spans if isinstance(each, TimeSpan)}, key=lambda each: (each.start, each.end))
    return tuple(days), tuple(times), date(years[-1], 12, 31) if recurs else None


def _recurs(parsed: Any) -> bool:
    """Whether an event recurs; refuses events that recur more often than once a day."""
    rules = [rule for event in parsed.walk("VEVENT") for rule in _rules(event)]
    for rule in rules:
        frequency = str((rule.get("FREQ") or [""])[0]).upper()
        if frequency in _TOO_FREQUENT or any(rule.get(part) for part in ("BYHOUR", "BYMINUTE", "BYSECOND")):
            raise InvalidSchedule(
                f"an event of the calendar recurs {frequency.lower()}, or several times a day",
                hint="use Calendar.hours(…) for hours of each day",
            )
    return bool(rules)


def _rules(event: Any) -> list[Any]:
    rule = event.get("RRULE")
    return [] if rule is None else rule if isinstance(rule, list) else [rule]


def _all_years(parsed: Any, years: range) -> range:
    """The years of events that do not recur, together with the given ones."""
    starts = [event.decoded("DTSTART").year for event in parsed.walk("VEVENT") if "DTSTART" in event]
    known = [year for year in starts if 1900 <= year <= 2200]
    return range(min([*known, years[0]]), max([*known, years[-1]]) + 1)


def _found(query: Any, years: range) -> Iterator[Any]:
    """Events year by year, so that a file with too many is refused before all of them are computed."""
    number = 0
    for year in years:
        for event in query.between(date(year, 1, 1), date(year + 1, 1, 1)):
            number += 1
            if number > 2 * MOST_SPANS:  # an event at the turn of the year is found twice
                raise InvalidSchedule(
                    "the iCalendar file has too many events", hint=f"at most {MOST_SPANS}: choose fewer years"
                )
            yield event


def _span(event: Any, zone: str | None) -> DaySpan | TimeSpan:
    """One event. DTEND is not part of it; without one it lasts a day, or if it has a time, no time at all."""
    label = str(event.get("SUMMARY", ""))
    start, end = event.start, event.end
    if not isinstance(start, datetime):
        return day_span(start, max(start, end - _DAY), label)
    first, last = _instant(start, zone), _instant(end, zone)
    return time_span(first, max(last, first + timedelta(microseconds=1)), label)


def _instant(at: datetime, zone: str | None) -> datetime:
    """An instant; a time without a zone ("floating") is in the calendar's time zone, by default UTC."""
    return at if at.tzinfo is not None else zones.instant_of(at, zone or "UTC")
