"""Time zones: which instants correspond to wall-clock times.

A zone's history is divided into stretches of constant offset, in which local time is UTC plus a number. Within a
stretch, wall times are looked up without regard to zones; where two stretches meet, the policy decides about times that
the clock change skips or repeats. Instants are naive datetimes in UTC here, wall times naive datetimes in the zone.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, available_timezones

from duly.errors import InvalidSchedule, shown
from duly.model import Dst

# The range of datetime, less a margin for conversion by any offset.
BEGINNING = datetime(2, 1, 1)  # noqa: DTZ001 - naive UTC, as everywhere here
END = datetime(9999, 12, 30)  # noqa: DTZ001

# A schedule that is not due for this long is never due. The rarest day, 29 February on a given weekday,
# comes within 40 years.
GIVE_UP_YEARS = 100

# The shortest stretch of any zone is four days long (Freetown, 1939); the shortest later one is a week.
_SAMPLE = timedelta(days=2)
_SECOND = timedelta(seconds=1)
_TICK = timedelta(microseconds=1)


class WallTimes(Protocol):
    """Which wall times are wanted. `fixed`: a time of day was asked for, not an interval of minutes or hours."""

    @property
    def fixed(self) -> bool: ...

    def at_or_after(self, wall: datetime) -> datetime | None: ...

    def at_or_before(self, wall: datetime) -> datetime | None: ...


class Stretch(NamedTuple):
    """A time of constant offset, `start` included, `end` not; `before` is the offset until `start`.

    Until `fresh` its wall times repeat those before it; `fresh` equals `start` unless clocks went back.
    """

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta
    fresh: datetime

    @property
    def gap(self) -> bool:
        """Whether clocks went forward at its start, so that wall times were skipped."""
        return self.offset > self.before


def zone_key(timezone: object) -> str:
    """The IANA name of a zone given by name or as a `ZoneInfo`; raises `InvalidSchedule` if there is no such zone."""
    if isinstance(timezone, ZoneInfo):
        return _known(timezone.key) if timezone.key else _refuse(timezone, "use a zone that has a name")
    if timezone is UTC:
        return "UTC"
    if not isinstance(timezone, str):
        return _refuse(timezone, 'give an IANA name such as "Europe/Berlin", or a ZoneInfo')
    return _known(timezone)


def instant_of(wall: datetime, zone: str) -> datetime:
    """The instant of a wall time: one that clocks skip is the end of the gap, a repeated one is the first."""
    for stretch in stretches(zone, wall.year):
        if stretch.gap and stretch.start + stretch.before <= wall < stretch.start + stretch.offset:
            return stretch.start.replace(tzinfo=UTC)
    return wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def first_from(times: WallTimes, zone: str, dst: Dst, low: datetime) -> datetime | None:
    """The first due instant at or after `low`."""
    known = _Known()
    for stretch in _forward(zone, low):
        if stretch.gap and stretch.start >= low and _shifts(times, dst):
            skipped = known.at_or_after(times, stretch.start + stretch.before)
            if skipped is not None and skipped < stretch.start + stretch.offset:
                return stretch.start
        wall = known.at_or_after(times, max(low, _opening(stretch, times, dst)) + stretch.offset)
        if wall is None:
            return None
        if wall - stretch.offset < stretch.end:
            return wall - stretch.offset
    return None


def last_until(times: WallTimes, zone: str, dst: Dst, high: datetime) -> datetime | None:
    """The last due instant at or before `high`."""
    known = _Known()
    for stretch in _backward(zone, high):
        wall = known.at_or_before(times, min(high, stretch.end - _TICK) + stretch.offset)
        if wall is None:
            return None
        if wall - stretch.offset >= _opening(stretch, times, dst):
            return wall - stretch.offset
        if stretch.gap and wall >= stretch.start + stretch.before and _shifts(times, dst):
            return stretch.start
    return None


def remark(times: WallTimes, zone: str, dst: Dst, instant: datetime) -> str | None:
    """What clock changes mean for a due instant: it replaces a skipped time, or is one of a repeated time."""
    here = next(_forward(zone, instant), None)
    if here is None:
        return None
    wall = instant + here.offset
    if here.start == instant and here.gap and _shifts(times, dst):
        skipped = times.at_or_after(here.start + here.before)
        if skipped is not None and skipped < wall:
            return f"{_clock(skipped, wall)} does not exist{_that_day(skipped, wall)} (clocks go forward)"
    if instant < here.fresh:
        return f"{_clock(wall, wall)} happens twice that day; this is the second"
    if _comes_again(zone, instant):
        return f"{_clock(wall, wall)} happens twice that day; this is the first"
    return None


def _shifts(times: WallTimes, dst: Dst) -> bool:
    """Whether a skipped wall time is due at the first instant after the gap instead."""
    return times.fixed and dst is not Dst.SKIP


def _opening(stretch: Stretch, times: WallTimes, dst: Dst) -> datetime:
    """From when a stretch counts: fixed times are not due again when clocks repeat them."""
    return stretch.fresh if times.fixed and dst is not Dst.BOTH else stretch.start


def _comes_again(zone: str, instant: datetime) -> bool:
    """Whether the next clock change repeats the wall time of the instant."""
    for stretch in _forward(zone, instant):
        if stretch.start > instant + timedelta(days=1):
            return False
        if stretch.start > instant >= stretch.start - (stretch.before - stretch.offset):
            return True
    return False


def _clock(wall: datetime, other: datetime) -> str:
    text = f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
    return text if wall.date() == other.date() else f"{wall:%Y-%m-%d} {text}"


def _that_day(wall: datetime, other: datetime) -> str:
    return " that day" if wall.date() == other.date() else ""


class _Known:
    """Caches the last result, so that a search across stretches without due times looks it up only once."""

    __slots__ = ("answer", "asked")

    def __init__(self) -> None:
        self.asked: datetime | None = None
        self.answer: datetime | None = None

    def at_or_after(self, times: WallTimes, wall: datetime) -> datetime | None:
        if self.asked is None or self.answer is None or not self.asked <= wall <= self.answer:
            self.asked, self.answer = wall, times.at_or_after(wall)
        return self.answer

    def at_or_before(self, times: WallTimes, wall: datetime) -> datetime | None:
        if self.asked is None or self.answer is None or not self.answer <= wall <= self.asked:
            self.asked, self.answer = wall, times.at_or_before(wall)
        return self.answer


def _forward(zone: str, instant: datetime) -> Iterator[Stretch]:
    """The stretches from the one that contains the instant, forwards."""
    instant = max(instant, BEGINNING)
    if instant >= END:
        return
    for year in range(instant.year, min(instant.year + GIVE_UP_YEARS, END.year) + 1):
        for stretch in stretches(zone, year):
            if stretch.end > instant:
                yield stretch


def _backward(zone: str, instant: datetime) -> Iterator[Stretch]:
    """The stretches from the one that contains the instant, backwards."""
    instant = min(instant, END - _TICK)
    for year in range(instant.year, max(instant.year - GIVE_UP_YEARS, BEGINNING.year) - 1, -1):
        for stretch in reversed(stretches(zone, year)):
            if stretch.start <= instant:
                yield stretch


@lru_cache(maxsize=8192)
def stretches(zone: str, year: int) -> tuple[Stretch, ...]:
    """The stretches of one year of a zone, also divided at the turn of the year (in UTC)."""
    return _stretches(ZoneInfo(zone), year)


def _stretches(zone: tzinfo, year: int) -> tuple[Stretch, ...]:
    begin = datetime(year, 1, 1)  # noqa: DTZ001
    end = END if year == END.year else datetime(year + 1, 1, 1)  # noqa: DTZ001
    # A repetition may reach over the turn of the year: look a little further back.
    changes = _changes(zone, begin - _SAMPLE, end)
    starts = [begin, *(change for change in changes if change > begin)]
    fresh = max([begin, *(_fresh(zone, change) for change in changes if change < begin)])
    found = []
    for start, stop in zip(starts, [*starts[1:], end], strict=True):
        offset, before = _offset(zone, start), _offset(zone, start - _SECOND)
        fresh = max(fresh, _fresh(zone, start))
        found.append(Stretch(start, stop, offset, before, max(fresh, start)))
    return tuple(found)


def _fresh(zone: tzinfo, start: datetime) -> datetime:
    """From when the wall times after a clock change are no longer repetitions."""
    return start + max(_offset(zone, start - _SECOND) - _offset(zone, start), timedelta(0))


def _changes(zone: tzinfo, low: datetime, high: datetime) -> list[datetime]:
    """The instants after `low` and before `high` at which the offset changes."""
    found = []
    early, offset = low, _offset(zone, low)
    while early < high - _SECOND:
        late = min(early + _SAMPLE, high - _SECOND)
        if (then := _offset(zone, late)) != offset:
            found.append(_change(zone, early, late))
        early, offset = late, then
    return found


def _change(zone: tzinfo, early: datetime, late: datetime) -> datetime:
    """The second at which the offset changes between two instants that have different ones."""
    offset = _offset(zone, early)
    apart = int((late - early).total_seconds())
    while apart > 1:
        half = early + timedelta(seconds=apart // 2)
        early, late = (half, late) if _offset(zone, half) == offset else (early, half)
        apart = int((late - early).total_seconds())
    return late


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    return zone.fromutc(instant.replace(tzinfo=zone)).replace(tzinfo=None) - instant


@lru_cache(maxsize=1024)
def _known(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found; not a relative path, or odd characters; a folder
        return _refuse(name, _zone_hint(name))
    return name


def _refuse(timezone: object, hint: str) -> str:
    raise InvalidSchedule(f"unknown time zone {shown(timezone)}", field="timezone", hint=hint)


def _zone_hint(name: str) -> str:
    names = _names()
    wanted = name.strip().replace(" ", "_").lower()[:64]
    near = [names[key] for key in names if key.rpartition("/")[2] == wanted or key == wanted]
    near = near or [names[key] for key in difflib.get_close_matches(wanted, names, n=3)]
    return f"did you mean {' or '.join(near[:3])}?" if near else 'give an IANA name such as "Europe/Berlin"'


@cache
def _names() -> dict[str, str]:
    """The names of all zones by their lower-case spelling."""
    return {name.lower(): name for name in sorted(available_timezones())}
