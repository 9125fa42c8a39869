"""Times in words, as people write them and as Duly prints them.

ISO 8601 with or without a time zone, "now", "03:00", "yesterday 03:00", "tomorrow 02:30 Europe/Berlin",
"10 minutes ago", "in 2 h 5 min", "11-16 01:30:00", "Sun 2027-03-14 03:00:00 EDT".

Parsing a text and computing its time are two steps, because the time zone of a text without one may be known only after
a job was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from duly.errors import ConfigurationError, InvalidSchedule
from duly.rules.durations import seconds_of
from duly.rules.zones import instant_of, zone_key

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?", re.ASCII)
_MONTH_AND_DAY = re.compile(r"(\d{2})-(\d{2})", re.ASCII)
_OFFSET = re.compile(r"[+-]\d{2}(?::?\d{2})?", re.ASCII)
_ABBREVIATION = re.compile(r"[A-Z]{2,6}", re.ASCII)
_EXAMPLES = '2027-03-14T02:30, 2027-03-14T02:30-05:00, now, 03:00, "yesterday 03:00" or "10 minutes ago"'

Resolve = Callable[[datetime, str], datetime]
"""Computes a time from the current time and the default time zone."""


class TimeText(Struct, frozen=True):
    """A time as it was written. `relative`: it depends on the current time; `zoned`: it needs no default time zone."""

    text: str
    resolver: Resolve
    relative: bool
    zoned: bool

    def resolve(self, now: datetime, zone: str) -> datetime:
        """The time in UTC. A local time that clocks skip is the end of the gap; of a repeated one it is the first."""
        try:
            return self.resolver(now, zone)
        except ConfigurationError as exc:
            raise _invalid(self.text, str(exc)) from exc
        except (OverflowError, ValueError):  # beyond the years of the calendar, or 29 February in a year without one
            raise _invalid(self.text, "the calendar has no such day") from None


def _invalid(text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"invalid time {text!r}: {reason}")


def read_time(text: str) -> TimeText:
    """Parse a time; raises `ConfigurationError`."""
    words = text.split()
    match [word.lower() for word in words]:
        case ["now"]:
            return TimeText(text, lambda now, _: now, relative=True, zoned=True)
        case ["in", _, *_]:
            distance = _distance(text, words[1:])
            return TimeText(text, lambda now, _: now + distance, relative=True, zoned=True)
        case [_, *_, "ago"]:
            distance = _distance(text, words[:-1])
            return TimeText(text, lambda now, _: now - distance, relative=True, zoned=True)
        case _:
            return _calendar(text, words)


def read_past(text: str) -> TimeText:
    """The same, where a length of time such as 1h means that long ago."""
    try:
        return read_time(f"{text} ago")
    except ConfigurationError:
        return read_time(text)


def _distance(text: str, words: Sequence[str]) -> timedelta:
    length = " ".join(words)
    if length.replace(".", "").isdecimal():
        raise _invalid(text, "write the unit too, e.g. 10 minutes ago or in 90s")
    try:
        return timedelta(seconds=seconds_of(length))
    except ConfigurationError as exc:
        raise _invalid(text, str(exc)) from exc


def _calendar(text: str, words: Sequence[str]) -> TimeText:
    """A date, a time of day, or both, optionally followed by a time zone."""
    words, zone = _without_zone(text, words)
    wall = _near_day(text, [word.lower() for word in words])
    if wall is not None:
        return TimeText(text, _local(zone, wall), relative=True, zoned=zone is not None)
    weekday = words[0].lower() if len(words) > 1 and words[0].lower() in _WEEKDAYS else None
    found = _iso(text, words if weekday is None else words[1:], weekday)
    zoned = zone is not None or found.tzinfo is not None
    return TimeText(text, _dated(text, found, zone), relative=False, zoned=zoned)


def _near_day(text: str, words: Sequence[str]) -> Callable[[date], datetime] | None:
    """A time on a day that is counted from today, or of this year; None if the text has a date."""
    match words:
        case [day] if day in _DAYS:
            return lambda today: _on_day(today, _DAYS[day], time(0))
        case [day, clock] if day in _DAYS and _CLOCK.fullmatch(clock):
            at = _clock(text, clock)
            return lambda today: _on_day(today, _DAYS[day], at)
        case [day, clock] if _MONTH_AND_DAY.fullmatch(day) and _CLOCK.fullmatch(clock):
            month, number = map(int, day.split("-"))
            at = _clock(text, clock)
            return lambda today: datetime.combine(date(today.year, month, number), at)
        case [clock] if _CLOCK.fullmatch(clock):
            at = _clock(text, clock)
            return lambda today: _on_day(today, 0, at)
        case _:
            return None


def _on_day(today: date, days: int, at: time) -> datetime:
    return datetime.combine(today + timedelta(days=days), at)


def _local(named: str | None, wall_time: Callable[[date], datetime]) -> Resolve:
    """A local time, which depends on the date in its time zone.

    `named` is the zone that was written: its name, or the abbreviation that the default zone uses at that time.
    """

    def wall_in(zone: str, now: datetime) -> datetime:
        return wall_time(now.astimezone(ZoneInfo(zone)).date())

    def resolve(now: datetime, zone: str) -> datetime:
        if named is None:
            return instant_of(wall_in(zone, now), zone)
        for fold in (0, 1):  # an abbreviation distinguishes the two occurrences of a repeated time
            local = wall_in(zone, now).replace(tzinfo=ZoneInfo(zone), fold=fold)
            if local.tzname() == named:
                return local.astimezone(UTC)
        try:
            key = zone_key(named)
        except InvalidSchedule as exc:
            raise ConfigurationError(f"{named} is not used in {zone} at that time, and {exc}") from exc
        return instant_of(wall_in(key, now), key)

    return resolve


def _without_zone(text: str, words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The words before the name of a time zone, and that name. An offset is not a name."""
    if len(words) < 2 or not words[-1][0].isalpha():
        return words, None
    last = words[-1]
    if _ABBREVIATION.fullmatch(last):
        return words[:-1], last
    try:
        return words[:-1], zone_key(last)
    except InvalidSchedule as exc:
        raise _invalid(text, str(exc)) from exc


def _clock(text: str, clock: str) -> time:
    try:
        return time.fromisoformat(clock.zfill(8) if clock.count(":") == 2 else clock.zfill(5))
    except ValueError:
        raise _invalid(text, "a time of day is 00:00 to 23:59:59") from None


def _iso(text: str, words: Sequence[str], weekday: str | None = None) -> datetime:
    offset = words[-1] if len(words) > 2 and _OFFSET.fullmatch(words[-1]) else ""
    try:
        found = datetime.fromisoformat(" ".join(words[:-1] if offset else words) + offset)
    except ValueError:
        raise _invalid(text, f"expected e.g. {_EXAMPLES}") from None
    if weekday is not None and weekday != (actual := _WEEKDAYS[found.weekday()]):
        raise _invalid(text, f"that day is a {actual.capitalize()}")
    return found


def _dated(text: str, found: datetime, zone: str | None) -> Resolve:
    if found.tzinfo is None:
        return _local(zone, lambda _: found)
    if zone is not None:
        raise _invalid(text, "it has an offset and a time zone; write one of them")
    try:
        instant = found.astimezone(UTC)
    except OverflowError:
        raise _invalid(text, "the calendar has no such day") from None
    return lambda _, __: instant
