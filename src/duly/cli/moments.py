"""Moments as people write them: ISO 8601 with or without a zone, "now", "03:00", "yesterday 03:00", "today 14:30".

Reading the text and placing it on the line of instants are two steps: which zone a moment without one is meant in may
be known only after a job was looked up.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import click
from msgspec import Struct

from duly.errors import ConfigurationError, InvalidSchedule
from duly.rules.zones import instant_of, zone_key

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?", re.ASCII)
_EXAMPLES = "write for example 2027-03-14T02:30, 2027-03-14T02:30-05:00, now, 03:00, or yesterday 03:00"


class Moment(Struct, frozen=True):
    """A moment as it was written: an instant, a wall time, or a time of day some days from today."""

    text: str
    instant: datetime | None = None
    wall: datetime | None = None
    clock: time | None = None
    days: int = 0

    def resolve(self, now: datetime, zone: str) -> datetime:
        """The instant, in UTC. A wall time that clocks skip is the end of the gap, a repeated one is the first."""
        if self.instant is not None:
            return self.instant
        if self.wall is None and self.clock is None:
            return now
        try:
            wall = self.wall
            if wall is None:
                assert self.clock is not None
                today = now.astimezone(ZoneInfo(zone)).date()
                wall = datetime.combine(today + timedelta(days=self.days), self.clock)
            return instant_of(wall, zone)
        except OverflowError:
            raise ConfigurationError(f"{self.text!r} is beyond the calendar") from None


def read_moment(text: str) -> Moment:
    """What a text means; raises `ConfigurationError`."""
    words = text.strip().lower().split()
    match words:
        case ["now"]:
            return Moment(text)
        case [day] if day in _DAYS:
            return Moment(text, clock=time(0), days=_DAYS[day])
        case [day, clock] if day in _DAYS and _CLOCK.fullmatch(clock):
            return Moment(text, clock=_clock(text, clock), days=_DAYS[day])
        case [clock] if _CLOCK.fullmatch(clock):
            return Moment(text, clock=_clock(text, clock))
        case _:
            return _iso(text)


def _clock(text: str, clock: str) -> time:
    try:
        return time.fromisoformat(clock.zfill(8) if clock.count(":") == 2 else clock.zfill(5))
    except ValueError:
        raise ConfigurationError(f"{text!r} is no time of day: 00:00 to 23:59:59") from None


def _iso(text: str) -> Moment:
    try:
        found = datetime.fromisoformat(text.strip())
        if found.tzinfo is None:
            return Moment(text, wall=found)
        return Moment(text, instant=found.astimezone(UTC))
    except ValueError:
        raise ConfigurationError(f"{text!r} is no moment: {_EXAMPLES}") from None
    except OverflowError:
        raise ConfigurationError(f"{text!r} is beyond the calendar") from None


def moment(text: str) -> Moment:
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
