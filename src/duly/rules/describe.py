"""Schedules in plain words, for listings and for people who do not read cron.

Pure text from values: nothing is computed here. The words follow the fields: first the time of day, then the days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import product

from duly.model import iso
from duly.rules.cron import (
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    Expression,
    Field,
    Hashed,
    Item,
    Items,
    LastDay,
    LastOf,
    LastWeekday,
    Nth,
    Span,
    Star,
    expand,
)

# More times of day than these are described by a rule rather than one by one.
_MOST_TIMES = 6

_CHOSEN = "chosen from the job's name"
_ALWAYS: Items = (Star(),)
_AT_ZERO: Items = (Span(0, 0),)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def cron(expression: Expression) -> str:
    """When an expression is due: "at 09:00 on Monday to Friday"."""
    seconds, minutes, hours, days, months, weekdays = expression.fields
    time, daily = _time(seconds, minutes, hours)
    date = _date(days, months, weekdays) or ("every day" if daily else "")
    if date.startswith("in ") and daily:
        date = f"every day {date}"
    return f"{time} {date}".strip()


def interval(span: timedelta) -> str:
    """How often: "every 15 minutes", "every hour", "every 1 hour 30 minutes"."""
    parts = _parts(span)
    if len(parts) == 1 and parts[0][0] == 1:
        return f"every {parts[0][1]}"
    return "every " + " ".join(_many(count, unit) for count, unit in parts)


def duration(span: timedelta) -> str:
    """A length of time: "30 seconds", "1 hour 30 minutes"."""
    return " ".join(_many(count, unit) for count, unit in _parts(span))


def instant(at: datetime) -> str:
    """An instant in UTC, without decimals that are zero."""
    return iso(at).replace(".000000Z", "Z")


def _parts(span: timedelta) -> list[tuple[int, str]]:
    micros = span // timedelta(microseconds=1)
    if micros % 604_800_000_000 == 0 and micros:
        return [(micros // 604_800_000_000, "week")]
    found = []
    for unit, size in _UNITS:
        count, micros = divmod(micros, size)
        if count:
            found.append((count, unit))
    return found


_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)


def _many(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _joined(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def _time(seconds: Items, minutes: Items, hours: Items) -> tuple[str, bool]:
    """The time of day, and whether "every day" must follow it."""
    if clock := _clock_times(seconds, minutes, hours):
        return f"at {clock}", True
    if seconds == _AT_ZERO:
        return _minutes_and_hours(minutes, hours)
    each = _each(seconds, SECOND)
    if minutes == _ALWAYS:
        return _spread_over(each if each.startswith("every") else f"{each} of every minute", hours), False
    rest, daily = _minutes_and_hours(minutes, hours)
    return f"{each}, {rest}", daily


def _clock_times(seconds: Items, minutes: Items, hours: Items) -> str | None:
    """Times of day one by one, if they are few."""
    fields = ((hours, HOUR), (minutes, MINUTE), (seconds, SECOND))
    if not all(isinstance(item, Span) for items, _ in fields for item in items):
        return None
    values = [sorted({value for item in items for value in expand(item, field)}) for items, field in fields]
    if len(values[0]) * len(values[1]) * len(values[2]) > _MOST_TIMES:
        return None
    form = "{:02}:{:02}" if seconds == _AT_ZERO else "{:02}:{:02}:{:02}"
    return _joined([form.format(*parts) for parts in product(*values)])


def _minutes_and_hours(minutes: Items, hours: Items) -> tuple[str, bool]:
    if minutes == _AT_ZERO and isinstance(hours[0], Star) and len(hours) == 1:
        return _stepped(hours[0].step, HOUR), False
    if isinstance(minutes[0], Star) and len(minutes) == 1:
        return _spread_over(_stepped(minutes[0].step, MINUTE), hours), False
    if chosen := _chosen_time(minutes, hours):
        return chosen, True
    each = _each(minutes, MINUTE)
    if each.startswith("every") and hours == _ALWAYS:
        return each, False
    return f"{each} past {_hours(hours)}", not isinstance(hours[0], Star)


def _chosen_time(minutes: Items, hours: Items) -> str | None:
    """`H H` and `H H(1-5)`: a time of day rather than a minute and an hour."""
    match minutes, hours:
        case (Hashed(0, 59, None),), (Hashed(0, 23, None),):
            return f"at a time {_CHOSEN}"
        case (Hashed(0, 59, None),), (Hashed(first, last, None),):
            return f"at a time between {first:02}:00 and {last:02}:59 {_CHOSEN}"
        case _:
            return None


def _stepped(step: int, field: Field) -> str:
    """`*` and `*/step`. A step that does not divide the field starts again with each round of it."""
    if step == 1:
        return f"every {field.name}"
    whole = {"second": "minute", "minute": "hour", "hour": "day"}[field.name]
    restart = f", counted from the start of each {whole}" if field.size % step else ""
    return f"every {step} {field.name}s{restart}"


def _spread_over(rate: str, hours: Items) -> str:
    """A rate, and the hours in which it applies."""
    if hours == _ALWAYS:
        return rate
    if all(isinstance(item, Span) and item.step == 1 for item in hours):
        spans = [f"from {item.first:02}:00 to {item.last:02}:59" for item in hours if isinstance(item, Span)]
        return f"{rate} {_joined(spans)}"
    return f"{rate} during {_hours(hours)}"


def _each(items: Items, field: Field) -> str:
    """A list of seconds or minutes: "at minutes 5 and 20", "every minute from 5 to 35"."""
    few = [item for item in items if isinstance(item, Span) and len(expand(item, field)) <= _MOST_TIMES]
    words = [_each_item(item, field) for item in items if item not in few]
    if few:
        values = sorted({value for item in few for value in expand(item, field)})
        words.insert(0, f"at {field.name}{'s' if len(values) > 1 else ''} {_joined([str(value) for value in values])}")
    return _joined(words)


def _each_item(item: Item, field: Field) -> str:
    match item:
        case Star(step):
            return _stepped(step, field)
        case Span(first, last, step):
            return f"{_stepped(step, field).partition(',')[0]} from {first} to {last}"
        case Hashed(_, _, None):
            return f"at {_choice(item, field, f'a {field.name}')}"
        case Hashed(first, last, step):
            return f"every {step} {field.name}s from {_choice(item, field, f'a {field.name}')}"
        case _:
            raise AssertionError(f"{item} is for days")


def _choice(item: Hashed, field: Field, one: str) -> str:
    """What an `H` chooses; `one` names it: "a minute"."""
    if (item.first, item.last) == field.hashed:
        return f"{one} {_CHOSEN}"
    return f"{one} from {item.first} to {item.last} {_CHOSEN}"


def _hours(items: Items) -> str:
    """A list of hours, as in "past 02:00 and 04:00", "during every 2nd hour"."""
    return _joined([_hour_item(item) for item in items])


def _hour_item(item: Item) -> str:
    match item:
        case Star(step):
            return "every hour" if step == 1 else f"every {_ordinal(step)} hour"
        case Span(first, last, _) if first == last:
            return f"{first:02}:00"
        case Span(first, last, step):
            every = "every hour" if step == 1 else f"every {_ordinal(step)} hour"
            return f"{every} from {first:02}:00 to {last:02}:00"
        case Hashed(_, _, None):
            return _choice(item, HOUR, "an hour")
        case Hashed(_, _, int(step)):
            return f"every {_ordinal(step)} hour from {_choice(item, HOUR, 'an hour')}"
        case _:
            raise AssertionError(f"{item} is for days")


def _date(days: Items, months: Items, weekdays: Items) -> str:
    """Which days, empty for all of them. If neither day field begins with `*`, one of them is enough."""
    during = "" if months == _ALWAYS else _list(months, lambda item: _named(item, MONTH, _MONTHS, 1, "a month"))
    month = during or "the month"
    if days == _ALWAYS and weekdays == _ALWAYS:
        return f"in {during}" if during else ""
    if weekdays == _ALWAYS:
        return f"on {_list(days, _day)} of {month}"
    on = _list(weekdays, lambda item: _weekday(item, month))
    if days == _ALWAYS:
        plain = not any(isinstance(item, LastOf | Nth) for item in weekdays)
        return f"on {on} in {during}" if during and plain else f"on {on}"
    together = "if it is" if isinstance(days[0], Star) or isinstance(weekdays[0], Star) else "or on"
    return f"on {_list(days, _day)} of {month} {together} {on}"


def _list(items: Items, word: Callable[[Item], list[str]]) -> str:
    return _joined([text for item in items for text in word(item)])


def _day(item: Item) -> list[str]:
    match item:
        case Star(step):
            return ["every day" if step == 1 else f"every {_ordinal(step)} day from the 1st"]
        case Span(first, last, _) if first == last:
            return [f"the {_ordinal(first)}"]
        case Span(first, last, step):
            days = f"the {_ordinal(first)} to the {_ordinal(last)}"
            return [days if step == 1 else f"every {_ordinal(step)} day from {days}"]
        case LastDay():
            return ["the last day"]
        case LastWeekday():
            return ["the last weekday"]
        case Hashed(first, _, step):
            start = f"a day ({_ordinal(first)} to {_ordinal(item.last)}, {_CHOSEN})"
            return [start if step is None else f"every {_ordinal(step)} day from {start}"]
        case _:
            raise AssertionError(f"{item} is for weekdays")


def _weekday(item: Item, month: str) -> list[str]:
    match item:
        case LastOf(weekday):
            return [f"the last {_WEEKDAYS[weekday]} of {month}"]
        case Nth(weekday, nth):
            return [f"the {_ordinal(nth)} {_WEEKDAYS[weekday]} of {month}"]
        case _:
            return _named(item, WEEKDAY, _WEEKDAYS, 0, "a day of the week")


def _named(item: Item, field: Field, names: Sequence[str], low: int, one: str) -> list[str]:
    """Months and weekdays by name; a range with steps is listed one by one."""
    match item:
        case Hashed(first, last, step):
            span = "" if (first, last) == field.hashed else f" from {names[first - low]} to {names[last - low]}"
            chosen = f"{one}{span} {_CHOSEN}"
            return [chosen if step is None else f"every {_ordinal(step)} from {chosen}"]
        case Span(first, last, 1) if first != last:
            return [f"{names[first - low]} to {names[last - low]}"]
        case Star(1):
            return ["any day" if field is WEEKDAY else "any month"]
        case _:
            return list(dict.fromkeys(names[value - low] for value in expand(item, field)))


def _ordinal(number: int) -> str:
    ending = "th" if number in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
