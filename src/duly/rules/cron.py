"""Cron expressions: the grammar, its errors, and the wall-clock times that an expression matches.

`read` turns text into an `Expression` or raises `InvalidSchedule` with field, position and hint; its running time is
bounded by the length of the text. `resolve` replaces `H` by numbers hashed from a job's name. Days are matched by
cronsim, so that day-of-month and day-of-week combine as in Debian's cron. Zones and clock changes are left to
`rules.zones`.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple, NoReturn

from cronsim import CronSim, CronSimError
from msgspec import Struct

from duly.errors import InvalidSchedule

MAX_LENGTH = 256
MAX_ITEMS = 100

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Field(Struct, frozen=True):
    """One field of an expression: its values, their names, the values a bare `H` chooses from."""

    name: str
    low: int
    high: int
    hashed: tuple[int, int]
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many different values there are: Sunday is both 0 and 7."""
        return 7 if self.name == "day-of-week" else self.high - self.low + 1

    def value(self, name: str) -> int | None:
        return self.names.index(name) + self.low if name in self.names else None


SECOND = Field("second", 0, 59, (0, 59))
MINUTE = Field("minute", 0, 59, (0, 59))
HOUR = Field("hour", 0, 23, (0, 23))
DAY = Field("day-of-month", 1, 31, (1, 28))
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
MONTH = Field("month", 1, 12, (1, 12), MONTHS)
WEEKDAY = Field("day-of-week", 0, 7, (0, 6), ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class Star(Struct, frozen=True):
    """`*` or `*/step`."""

    step: int = 1


class Span(Struct, frozen=True):
    """`first-last/step`; one value is a span of one. In months and weekdays `last` may come before `first`."""

    first: int
    last: int
    step: int = 1


class Hashed(Struct, frozen=True):
    """`H(first-last)/step`: one value, or the start of the steps, chosen from the job's name."""

    first: int
    last: int
    step: int | None = None

    def choose(self, number: int) -> Span:
        size = self.last - self.first + 1
        if self.step is None:
            return Span(self.first + number % size, self.first + number % size)
        return Span(self.first + number % min(self.step, size), self.last, self.step)


class LastDay(Struct, frozen=True):
    """`L` in day-of-month."""


class LastWeekday(Struct, frozen=True):
    """`LW` in day-of-month: the last day of the month that is Monday to Friday."""


class LastOf(Struct, frozen=True):
    """`5L` in day-of-week: the last Friday of the month."""

    weekday: int


class Nth(Struct, frozen=True):
    """`MON#2` in day-of-week: the second Monday of the month."""

    weekday: int
    nth: int


Item = Star | Span | Hashed | LastDay | LastWeekday | LastOf | Nth
Items = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: six fields of items, seconds first, and the wall-clock times they match.

    `text` is the expression with single blanks. Where an `H` is left, `times` are those of a job without a name.
    """

    text: str
    fields: tuple[Items, ...]
    times: WallTimes

    @property
    def hashed(self) -> bool:
        return any(isinstance(item, Hashed) for item in chain.from_iterable(self.fields))


def read(expression: object) -> Expression:
    """Parse an expression; raises `InvalidSchedule` with position and reason if it is invalid or can never be due."""
    if not isinstance(expression, str):
        raise InvalidSchedule(
            f"a cron expression is text, not {type(expression).__name__}", hint='write for example Cron("30 2 * * *")'
        )
    if len(expression) > MAX_LENGTH:
        raise InvalidSchedule(
            f"cron expression {expression[:40]!r}… has {len(expression)} characters",
            expression=expression,
            position=MAX_LENGTH,
            hint=f"at most {MAX_LENGTH} are allowed: split it into several jobs",
        )
    return _read(expression)


def resolve(expression: Expression, name: str) -> str:
    """The text of the expression with every `H` replaced by what this job's name chooses."""
    if not expression.hashed:
        return expression.text
    texts = expression.text.split(" ")
    for index, items in enumerate(expression.fields[-len(texts) :], len(FIELDS) - len(texts)):
        if any(isinstance(item, Hashed) for item in items):
            texts[index - len(FIELDS)] = _text(_settled(items, name_hash(name, FIELDS[index])), FIELDS[index])
    return " ".join(texts)


def name_hash(name: str, field: Field) -> int:
    """A number that is the same on every machine, and independent from field to field."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=field.name.encode())
    return int.from_bytes(digest.digest(), "big")


@lru_cache(maxsize=4096)
def _read(text: str) -> Expression:
    words = [(match.start(), match[0]) for match in re.finditer(r"[^ \t]+", text)]
    if words and words[0][1].startswith("@"):
        return _read_alias(text, words)
    pieces = _pieces(text, words)
    given = tuple(_items(piece) for piece in pieces)
    _refuse_too_many(pieces, given)
    fields = given if len(given) == len(FIELDS) else ((Span(0, 0),), *given)
    _refuse_impossible(pieces, fields)
    unnamed = tuple(_settled(items, name_hash("", field)) for items, field in zip(fields, FIELDS, strict=True))
    return Expression(" ".join(word for _, word in words), fields, WallTimes(unnamed))


def _read_alias(text: str, words: list[tuple[int, str]]) -> Expression:
    at, word = words[0]
    name = word.lower()
    if name not in ALIASES:
        raise _unreadable(text, at, f"unknown alias {word!r}", _alias_hint(name))
    if len(words) > 1:
        raise _unreadable(text, words[1][0], f"something follows {word!r}", "an alias stands alone")
    return replace(_read(ALIASES[name]), text=name)


def _alias_hint(name: str) -> str:
    if name == "@reboot":
        return "there is no boot to wait for: submit the job when your program starts"
    if name == "@every":
        return "for a fixed interval use Every(minutes=5)"
    near = difflib.get_close_matches(name, ALIASES, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(ALIASES)}"


class _Piece(NamedTuple):
    """A piece of an expression with its position, for error messages."""

    whole: str
    field: Field
    at: int
    text: str

    def cut(self, sign: str) -> list[_Piece]:
        """The pieces between occurrences of `sign`."""
        at, found = self.at, []
        for text in self.text.split(sign):
            found.append(self._replace(at=at, text=text))
            at += len(text) + len(sign)
        return found

    def inner(self, start: int, stop: int | None = None) -> _Piece:
        return self._replace(at=self.at + start, text=self.text[start:stop])

    @property
    def upper(self) -> str:
        """The text in upper case, if it is ASCII: some other characters have an ASCII letter as their upper case."""
        return self.text.upper() if self.text.isascii() else self.text

    def fail(self, problem: str, hint: str) -> NoReturn:
        raise _unreadable(self.whole, self.at, problem, hint, self.field)


def _unreadable(text: str, at: int, problem: str, hint: str, field: Field | None = None) -> InvalidSchedule:
    place = f"{field.name}, character {at}" if field else f"character {at}"
    return InvalidSchedule(
        f"cron expression {text!r}: {problem} ({place})",
        expression=text,
        field=field.name if field else None,
        position=at,
        hint=hint,
    )


def _pieces(text: str, words: list[tuple[int, str]]) -> list[_Piece]:
    """One piece for each of the five or six fields."""
    fields = FIELDS if len(words) == len(FIELDS) else FIELDS[1:]
    if len(words) != len(fields):
        at = words[len(FIELDS)][0] if len(words) > len(FIELDS) else len(text)
        raise _unreadable(text, at, f"{len(words)} fields instead of 5 or 6", _count_hint(words))
    return [_Piece(text, field, at, word) for field, (at, word) in zip(fields, words, strict=True)]


def _count_hint(words: list[tuple[int, str]]) -> str:
    if len(words) == len(FIELDS) + 1:
        return "there is no field for years: bound the schedule with start_at and end_at"
    return f"write {' '.join(field.name for field in FIELDS[1:])}, with seconds before them if you need them"


def _items(piece: _Piece) -> Items:
    if piece.text == "?" and piece.field in {DAY, WEEKDAY}:
        return (Star(),)
    return tuple(_item(part) for part in piece.cut(","))


def _item(piece: _Piece) -> Item:
    body, *steps = piece.cut("/")
    if not body.text:
        piece.fail("an empty item", f"write */{steps[0].text}" if steps else "remove the extra comma or give a value")
    if len(steps) > 1:
        steps[1].fail("a second step", "one step is enough, as in */15")
    step = _step(steps[0]) if steps else None
    return _special(body, step) or _ordinary(body, step)


def _step(piece: _Piece) -> int:
    step = _number(piece)
    if step is None:
        piece.fail(
            f"invalid step {piece.text!r}: expected a number", _character_hint(piece.text) or "write for example */15"
        )
    if step == 0:
        piece.fail("a step of 0 never moves", "use a step of 1 or more")
    if step > piece.field.size:
        piece.fail(f"a step of {piece.text} is wider than the field", _wide_step_hint(piece.field, step))
    return step


def _wide_step_hint(field: Field, step: int) -> str:
    units = {"second": "seconds", "minute": "minutes", "hour": "hours"}
    if field.name in units:
        return f"each field starts again at {field.low}: for a fixed interval use Every({units[field.name]}={step})"
    return f"use a step of at most {field.size}"


def _special(piece: _Piece, step: int | None) -> Item | None:
    """The items that are not plain numbers and ranges; None for those."""
    text, field = piece.upper, piece.field
    if text == "*":
        return Star(step or 1)
    if text.startswith("H"):
        return _hashed(piece, step)
    found: Item | None = None
    if field is DAY and text in {"L", "LW"}:
        found = LastDay() if text == "L" else LastWeekday()
    elif field is WEEKDAY and "#" in text:
        found = _nth(piece)
    elif field is WEEKDAY and text.endswith("L") and text != "L":
        found = LastOf(_value(piece.inner(0, -1)))
    if found is not None and step is not None:
        piece.fail(f"a step after {piece.text!r}", "it stands for one day: leave the step out")
    return found


def _hashed(piece: _Piece, step: int | None) -> Hashed:
    if len(piece.text) == 1:
        return Hashed(*piece.field.hashed, step)
    bounds = piece.inner(2, -1).cut("-")
    if piece.text[1] != "(" or piece.text[-1] != ")" or len(bounds) != 2:
        piece.fail(f"cannot read {piece.text!r}", "write H, H/15, H(0-29) or H(0-29)/10")
    first, last = (_value(bound) for bound in bounds)
    if first > last:
        piece.fail(f"the range {piece.text!r} runs backwards", f"write H({last}-{first})")
    return Hashed(first, last, step)


def _nth(piece: _Piece) -> Nth:
    day, *rest = piece.cut("#")
    number = _number(rest[0]) if len(rest) == 1 else None
    if number is None or not 1 <= number <= 5:
        rest[0].fail(f"invalid week of a month {rest[0].text!r}", "write #1 to #5, as in MON#2; for the last one 1L")
    return Nth(_value(day), number)


def _ordinary(piece: _Piece, step: int | None) -> Span:
    first, *rest = piece.cut("-")
    if len(rest) > 1:
        rest[1].fail("a range with three ends", "write first-last")
    low = _value(first)
    if not rest:
        return Span(low, low if step is None else piece.field.high, step or 1)
    high = _value(rest[0])
    if low > high and not piece.field.names:
        field = piece.field
        piece.fail(f"the range {piece.text!r} runs backwards", f"write {low}-{field.high},{field.low}-{high}")
    return Span(low, high, step or 1)


def _value(piece: _Piece) -> int:
    field = piece.field
    number = _number(piece)
    if number is None:
        number = field.value(piece.upper)
    if number is None:
        piece.fail(f"cannot read {piece.text!r}", _value_hint(piece))
    if not field.low <= number <= field.high:
        hint = "midnight is hour 0" if piece.text == "24" and field is HOUR else f"use {field.low} to {field.high}"
        piece.fail(f"{piece.text} is outside {field.low}-{field.high}", hint)
    return number


def _number(piece: _Piece) -> int | None:
    """The piece as a number, if it consists of ASCII digits."""
    return int(piece.text) if piece.text.isascii() and piece.text.isdigit() else None


def _value_hint(piece: _Piece) -> str:
    """A hint at what the user may have meant."""
    text, field = piece.upper, piece.field
    if hint := _character_hint(text):
        return hint
    for other in (MONTH, WEEKDAY):
        if text[:3] in other.names:
            return f"write {text[:3]}" if other is field else f"{text[:3]} belongs in the {other.name} field"
    if field is DAY and text == "L":
        return "L stands alone: counting back from the last day is not supported"
    if hint := _SIGN_HINTS.get(text[-1:]):
        return hint
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return f"use {field.low} to {field.high}{names}, *, ranges a-b, steps */n or lists a,b"


_SIGN_HINTS = {
    "": "a number is missing",
    "?": "? stands for * in the two day fields only: write *",
    "L": "L and LW belong in the day-of-month field; for the last Friday write 5L in the day-of-week field",
    "W": "the nearest weekday is not supported; LW is the last weekday of the month",
    "*": "* stands alone or before a step, as in */15",
}


def _character_hint(text: str) -> str | None:
    if any(not sign.isprintable() for sign in text):
        return "remove the control character"
    if any(sign.isdigit() and not sign.isascii() for sign in text):
        return "use the digits 0 to 9"
    return "for a random but steady value use H" if "~" in text else None


def _refuse_too_many(pieces: list[_Piece], fields: tuple[Items, ...]) -> None:
    total = 0
    for piece, items in zip(pieces, fields, strict=True):
        total += len(items)
        if total > MAX_ITEMS:
            piece.fail(f"more than {MAX_ITEMS} items", "use ranges and steps, or split it into several jobs")


def _refuse_impossible(pieces: list[_Piece], fields: tuple[Items, ...]) -> None:
    """Refuse days that no year has. `H` must be possible whatever it chooses: its last day, each of its months."""
    day, month, weekday = pieces[-3:]
    days, weekdays = _settled(fields[3], -1), _settled(fields[5], 0)
    for number in range(12 if any(isinstance(item, Hashed) for item in fields[4]) else 1):
        months = _settled(fields[4], number)
        if not _possible(days, months, (Star(),)) and _star_first(fields):
            day.fail(f"there is no day {day.text!r} in month {month.text!r}", _impossible_hint(months))
        if not _possible(days, months, weekdays):
            weekday.fail(f"{weekday.text!r} never falls on such a day", "loosen one of the day fields")


def _possible(days: Items, months: Items, weekdays: Items) -> bool:
    try:
        return _days(f"{_text(days, DAY)} {_text(months, MONTH)} {_text(weekdays, WEEKDAY)}").possible()
    except CronSimError:  # of what the grammar above accepts, cronsim refuses only days that the months do not have
        return False


def _star_first(fields: tuple[Items, ...]) -> bool:
    """Whether both day fields must match; otherwise one is enough."""
    return isinstance(fields[3][0], Star) or isinstance(fields[5][0], Star)


def _impossible_hint(months: Items) -> str:
    longest = max(max(_LENGTHS[month]) for item in months for month in expand(item, MONTH))
    return f"it has at most {longest} days; L is the last day of the month"


class WallTimes:
    """The wall-clock times that an expression matches, on a clock without zone or changes (naive datetimes).

    `fixed`: neither minute nor hour begins with `*`. cronsim finds the days; the times of day, the same on each of
    them, are looked up here, because cronsim would step through every hour and minute in between.
    """

    __slots__ = ("_days", "_hours", "_minutes", "_seconds", "fixed")

    def __init__(self, fields: tuple[Items, ...]) -> None:
        seconds, minutes, hours, *days = fields
        self._days = _days(" ".join(_text(items, field) for items, field in zip(days, FIELDS[3:], strict=True)))
        self._hours, self._minutes, self._seconds = (
            _values(hours, HOUR),
            _values(minutes, MINUTE),
            _values(seconds, SECOND),
        )
        self.fixed = not isinstance(minutes[0], Star) and not isinstance(hours[0], Star)

    def at_or_after(self, wall: datetime) -> datetime | None:
        """The first matching time from `wall` on; None where there is none for fifty years."""
        if wall.microsecond:
            wall = wall.replace(microsecond=0) + _SECOND
        day = self._days.first(wall.date())
        if day == wall.date():
            found = self._later_that_day(wall.hour, wall.minute, wall.second)
            if found is not None:
                return datetime.combine(day, found)
            day = None if day == date.max else self._days.first(day + _DAY)
        return None if day is None else datetime.combine(day, self._time(0, 0, 0))

    def at_or_before(self, wall: datetime) -> datetime | None:
        """The last matching time up to `wall`; None where there is none for fifty years."""
        day = self._days.last(wall.date())
        if day == wall.date():
            found = self._earlier_that_day(wall.hour, wall.minute, wall.second)
            if found is not None:
                return datetime.combine(day, found)
            day = None if day == date.min else self._days.last(day - _DAY)
        return None if day is None else datetime.combine(day, self._time(-1, -1, -1))

    def _time(self, hour: int, minute: int, second: int) -> time:
        return time(self._hours[hour], self._minutes[minute], self._seconds[second])

    def _later_that_day(self, hour: int, minute: int, second: int) -> time | None:
        at_hour = bisect_left(self._hours, hour)
        if at_hour == len(self._hours):
            return None
        if self._hours[at_hour] > hour:
            return self._time(at_hour, 0, 0)
        at_minute = bisect_left(self._minutes, minute)
        if at_minute < len(self._minutes) and self._minutes[at_minute] == minute:
            at_second = bisect_left(self._seconds, second)
            if at_second < len(self._seconds):
                return self._time(at_hour, at_minute, at_second)
            at_minute += 1
        if at_minute < len(self._minutes):
            return self._time(at_hour, at_minute, 0)
        return self._time(at_hour + 1, 0, 0) if at_hour + 1 < len(self._hours) else None

    def _earlier_that_day(self, hour: int, minute: int, second: int) -> time | None:
        at_hour = bisect_right(self._hours, hour) - 1
        if at_hour < 0:
            return None
        if self._hours[at_hour] < hour:
            return self._time(at_hour, -1, -1)
        at_minute = bisect_right(self._minutes, minute) - 1
        if at_minute >= 0 and self._minutes[at_minute] == minute:
            at_second = bisect_right(self._seconds, second) - 1
            if at_second >= 0:
                return self._time(at_hour, at_minute, at_second)
            at_minute -= 1
        if at_minute >= 0:
            return self._time(at_hour, at_minute, -1)
        return self._time(at_hour - 1, -1, -1) if at_hour > 0 else None


_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class _Days(CronSim):
    """cronsim for days only. It never changes: each query uses a copy, so that threads can share it."""

    def __init__(self, days: str) -> None:
        super().__init__(f"* * * {days}", datetime(2000, 1, 1))  # noqa: DTZ001 - a wall clock has no zone

    def first(self, day: date) -> date | None:
        """The first matching day from `day` on."""
        twin = self._twin(datetime.combine(day, time.min))
        try:
            twin.advance()
        except (StopIteration, OverflowError):
            return None
        return twin.dt.date()

    def last(self, day: date) -> date | None:
        """The last matching day up to `day`."""
        twin = self._twin(datetime.combine(day, time(23, 59, 59)))
        try:
            twin.reverse()
        except (StopIteration, OverflowError):
            return None
        return twin.dt.date()

    def possible(self) -> bool:
        """Whether any day of any year matches: a month is known by its length and the weekday it begins with."""
        return any(
            self.match_day(first + timedelta(days=day))
            for length in sorted({length for month in self.months for length in _LENGTHS[month]}, reverse=True)
            for first in _months_of(length, min(month for month in self.months if length in _LENGTHS[month]))
            for day in range(length)
        )

    def _twin(self, dt: datetime) -> _Days:
        twin = _Days.__new__(_Days)
        twin.__dict__ = {**self.__dict__, "dt": dt}
        return twin


_LENGTHS = {month: (28, 29) if month == 2 else (30,) if month in {4, 6, 9, 11} else (31,) for month in range(1, 13)}


@cache
def _months_of(length: int, month: int) -> tuple[date, ...]:
    """First days of that month in years where it has that length, one for every weekday it can begin with."""
    found: dict[int, date] = {}
    for year in range(2000, 2040):  # 28 years contain every combination
        first = date(year, month, 1)
        if first + timedelta(days=length) == (first + timedelta(days=31)).replace(day=1):
            found.setdefault(first.weekday(), first)
    return tuple(found.values())


@lru_cache(maxsize=2048)
def _days(text: str) -> _Days:
    return _Days(text)


@lru_cache(maxsize=512)
def _values(items: Items, field: Field) -> tuple[int, ...]:
    """The sorted values of a time field."""
    return tuple(sorted(set(chain.from_iterable(expand(item, field) for item in items))))


def expand(item: Item, field: Field) -> list[int]:
    """The values that an item matches, in its own order; empty for items that depend on the month."""
    match item:
        case Star(step):
            return list(range(field.low, field.high + 1, step))
        case Span(first, last, step) if first <= last:
            return list(range(first, last + 1, step))
        case Span(first, last, step):
            return [field.low + (value - field.low) % field.size for value in range(first, last + field.size + 1, step)]
        case _:
            return []


def _text(items: Items, field: Field) -> str:
    """Items in cronsim's grammar."""
    return ",".join(_item_text(item, field) for item in items)


def _item_text(item: Item, field: Field) -> str:
    match item:
        case Star(step):
            return "*" if step == 1 else f"*/{step}"
        case Span(first, last, _) if first == last:
            return str(first)
        case Span(first, last, step) if first > last:  # cronsim does not support ranges that wrap around
            return ",".join(map(str, expand(item, field)))
        case Span(first, last, step):
            return f"{first}-{last}" if step == 1 else f"{first}-{last}/{step}"
        case LastDay():
            return "L"
        case LastWeekday():
            return "LW"
        case LastOf(weekday):
            return f"{weekday}L"
        case Nth(weekday, nth):
            return f"{weekday}#{nth}"
        case Hashed():
            raise AssertionError("H is settled before it is written")


def _settled(items: Items, number: int) -> Items:
    return tuple(item.choose(number) if isinstance(item, Hashed) else item for item in items)
