"""Instants: aware UTC datetimes in Python, integer microseconds on the wire.

Only this module converts between them, and only this module refuses naive datetimes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from duly.errors import shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The schedulable range. Stores order runs by doubles, which hold whole microseconds exactly until the year 2255.
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

# A double holds whole microseconds exactly up to here (the year 2223); `fromtimestamp` is 2.5 times faster than adding.
_EXACT_AS_FLOAT = 8_000_000_000_000_000


def to_micros(instant: datetime) -> int:
    """Microseconds since the Unix epoch, exactly."""
    since = instant - EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """The instant that many microseconds after the Unix epoch, exactly; OverflowError beyond the calendar."""
    if -_EXACT_AS_FLOAT < micros < _EXACT_AS_FLOAT:
        return datetime.fromtimestamp(micros / 1e6, UTC)
    return EPOCH + timedelta(microseconds=micros)


def as_utc(instant: datetime, what: str, error: type[ValueError] = ValueError) -> datetime:
    """The same instant in UTC; a naive datetime, or one that UTC cannot represent, raises `error` for `what`."""
    refuse_naive(instant, what, error)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise error(f"{what}={instant.isoformat()}: this instant cannot be represented in UTC") from None


def refuse_naive(instant: datetime, what: str, error: type[ValueError] = ValueError) -> None:
    """Raise `error`, which names `what`, for a datetime without a time zone."""
    given: object = instant
    if not isinstance(given, datetime):
        raise error(f"{what}={shown(given)}: expected a datetime with a time zone")
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise error(
            f"{what} is a naive datetime ({instant.isoformat()}): write {_constructor(instant)},"
            f" or add .astimezone() for the time zone of this machine"
        )


def _constructor(instant: datetime) -> str:
    """A datetime as it would be written with a time zone."""
    parts = [instant.year, instant.month, instant.day, instant.hour, instant.minute]
    parts += [instant.second] if instant.second or instant.microsecond else []
    parts += [instant.microsecond] if instant.microsecond else []
    return f"datetime({', '.join(map(str, parts))}, tzinfo=ZoneInfo('Europe/Berlin'))"


def schedulable(instant: datetime, what: str, error: type[ValueError] = ValueError) -> datetime:
    """The same instant in UTC if a run can be due then; otherwise raises `error`, which names `what`."""
    found = as_utc(instant, what, error)
    if not EARLIEST <= found <= LATEST:
        raise error(f"{what}={found.isoformat()}: expected a time between {EARLIEST.year} and {LATEST.year}")
    return found


def seconds_between(earlier: datetime, later: datetime) -> float:
    """How many seconds lie between two instants; negative when `later` is the earlier one."""
    return (later - earlier).total_seconds()


def stamp(instant: datetime) -> str:
    """The sortable, URL-safe text used in run ids: always the same width, always UTC."""
    return instant.strftime("%Y%m%dT%H%M%S.%f")


def iso(instant: datetime) -> str:
    """The text shown to users and clients: ISO 8601 with six decimals and Z."""
    here = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{here.isoformat(timespec='microseconds')[:-6]}Z"


def shift(instant: datetime, seconds: float) -> datetime:
    """The instant that many seconds later, limited to the range that can be scheduled."""
    try:
        found = instant + timedelta(0, seconds)
    except OverflowError:
        return LATEST if seconds > 0 else EARLIEST
    if EARLIEST.year <= found.year < LATEST.year:  # twice as fast as comparing instants
        return found
    return found if EARLIEST <= found <= LATEST else LATEST if found > LATEST else EARLIEST
