"""Times as people write them and as Duly prints them.

ISO 8601 with or without a zone, "now", "03:00", "yesterday 03:00", "tomorrow 02:30 Europe/Berlin", "10 minutes ago",
"in 2 h 5 min", "11-16 01:30:00", "Sun 2027-03-14 03:00:00 EDT".

Reading the text and placing it on the line of instants are two steps: which zone a moment without one is meant in may
be known only after a job was looked up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import click
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
_NO_SUCH_DAY = "the calendar has no such day"
_EXAMPLES = '2027-03-14T02:30, 2027-03-14T02:30-05:00, now, 03:00, "yesterday 03:00" or "10 minutes ago"'


class TimeArg(Struct, frozen=True):
    """A moment as it was written.

    It is an instant, a distance from now, a wall time, or a time of day some days from today or on a day of this year.
    `zone` is the name that was written with it: of a zone, or the abbreviation that a zone uses at that time.
    """

    text: str
    instant: datetime | None = None
    apart: timedelta | None = None
    wall: datetime | None = None
    clock: time | None = None
    days: int = 0
    day_of_year: tuple[int, int] | None = None
    zone: str | None = None

    def resolve(self, now: datetime, zone: str) -> datetime:
        """The instant, in UTC. A wall time that clocks skip is the end of the gap, a repeated one is the first."""
        try:
            if self.instant is not None:
                return self.instant
            if self.apart is not None:
                return now + self.apart
            return self._placed(now, zone)
        except ConfigurationError:
            raise
        except (OverflowError, ValueError):  # beyond the years of the calendar, or 29 February in a year without one
            raise ConfigurationError(f"invalid moment {self.text!r}: {_NO_SUCH_DAY}") from None

    def _placed(self, now: datetime, zone: str) -> datetime:
        wall = self._wall(now, zone)
        if self.zone is None:
            return instant_of(wall, zone)
        for fold in (0, 1):  # an abbreviation tells a repeated time from the first
            local = wall.replace(tzinfo=ZoneInfo(zone), fold=fold)
            if local.tzname() == self.zone:
                return local.astimezone(UTC)
        named = self._zone_named(zone)
        return instant_of(self._wall(now, named), named)

    def _wall(self, now: datetime, zone: str) -> datetime:
        if self.wall is not None:
            return self.wall
        assert self.clock is not None
        today = now.astimezone(ZoneInfo(zone)).date()
        if self.day_of_year is not None:
            return datetime.combine(date(today.year, *self.day_of_year), self.clock)
        return datetime.combine(today + timedelta(days=self.days), self.clock)

    def _zone_named(self, zone: str) -> str:
        assert self.zone is not None
        try:
            return zone_key(self.zone)
        except InvalidSchedule as exc:
            raise ConfigurationError(
                f"invalid moment {self.text!r}: {self.zone} is not used in {zone} at that time, and {exc}"
            ) from exc


def read_moment(text: str) -> TimeArg:
    """What a text means; raises `ConfigurationError`."""
    words = text.split()
    match [word.lower() for word in words]:
        case ["now"]:
            return TimeArg(text, apart=timedelta(0))
        case ["in", _, *_]:
            return TimeArg(text, apart=_distance(text, words[1:]))
        case [_, *_, "ago"]:
            return TimeArg(text, apart=-_distance(text, words[:-1]))
        case _:
            return _calendar(text, words)


def _distance(text: str, words: Sequence[str]) -> timedelta:
    length = " ".join(words)
    if length.replace(".", "").isdecimal():
        raise ConfigurationError(f"invalid moment {text!r}: write the unit too, e.g. 10 minutes ago or in 90s")
    try:
        return timedelta(seconds=seconds_of(length))
    except ConfigurationError as exc:
        raise ConfigurationError(f"invalid moment {text!r}: {exc}") from exc


def _calendar(text: str, words: Sequence[str]) -> TimeArg:
    """A date, a time of day, or both, with a zone behind them or not."""
    words, zone = _without_zone(words)
    match [word.lower() for word in words]:
        case [day] if day in _DAYS:
            return TimeArg(text, clock=time(0), days=_DAYS[day], zone=zone)
        case [day, clock] if day in _DAYS and _CLOCK.fullmatch(clock):
            return TimeArg(text, clock=_clock(text, clock), days=_DAYS[day], zone=zone)
        case [day, clock] if _MONTH_AND_DAY.fullmatch(day) and _CLOCK.fullmatch(clock):
            month, number = map(int, day.split("-"))
            return TimeArg(text, clock=_clock(text, clock), day_of_year=(month, number), zone=zone)
        case [clock] if _CLOCK.fullmatch(clock):
            return TimeArg(text, clock=_clock(text, clock), zone=zone)
        case [weekday, _, *_] if weekday in _WEEKDAYS:
            return _dated(text, _iso(text, words[1:], weekday), zone)
        case _:
            return _dated(text, _iso(text, words), zone)


def _without_zone(words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The words before the name of a zone, and that name; an offset is left where it is."""
    if len(words) < 2 or not words[-1][0].isalpha():
        return words, None
    last = words[-1]
    if _ABBREVIATION.fullmatch(last):
        return words[:-1], last
    try:
        return words[:-1], zone_key(last)
    except InvalidSchedule as exc:
        raise ConfigurationError(f"invalid moment {' '.join(words)!r}: {exc}") from exc


def _clock(text: str, clock: str) -> time:
    try:
        return time.fromisoformat(clock.zfill(8) if clock.count(":") == 2 else clock.zfill(5))
    except ValueError:
        raise ConfigurationError(f"invalid moment {text!r}: a time of day is 00:00 to 23:59:59") from None


def _iso(text: str, words: Sequence[str], weekday: str | None = None) -> datetime:
    offset = words[-1] if len(words) > 2 and _OFFSET.fullmatch(words[-1]) else ""
    try:
        found = datetime.fromisoformat(" ".join(words[:-1] if offset else words) + offset)
    except ValueError:
        raise ConfigurationError(f"invalid moment {text!r}: expected e.g. {_EXAMPLES}") from None
    if weekday is not None and weekday != (actual := _WEEKDAYS[found.weekday()]):
        raise ConfigurationError(f"invalid moment {text!r}: that day is a {actual.capitalize()}")
    return found


def _dated(text: str, found: datetime, zone: str | None) -> TimeArg:
    if found.tzinfo is None:
        return TimeArg(text, wall=found, zone=zone)
    if zone is not None:
        raise ConfigurationError(f"invalid moment {text!r}: it has an offset and a zone; write one of them")
    try:
        return TimeArg(text, instant=found.astimezone(UTC))
    except OverflowError:
        raise ConfigurationError(f"invalid moment {text!r}: {_NO_SUCH_DAY}") from None


def moment(text: str) -> TimeArg:
    """The type of an option that takes a moment."""
    try:
        return read_moment(text)
    except ConfigurationError as exc:
        raise click.BadParameter(str(exc)) from exc


def zone(name: str) -> str:
    """The type of an option that takes a time zone."""
    try:
        return zone_key(name)
    except InvalidSchedule as exc:
        raise click.BadParameter(str(exc)) from exc
