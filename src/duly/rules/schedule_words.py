"""Cron expressions from words: reads what `rules.describe` writes, such as "at 09:00 on Monday to Friday".

A small grammar proposes expressions, and the first one whose description is the given text is the answer. So a text is
never read as something else than it says, whatever the grammar proposes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice, product

from duly.errors import InvalidSchedule, shown
from duly.rules import describe
from duly.rules.cron import Expression, read

LONGEST = 500
_MOST_PROPOSALS = 200

Found = Iterator[tuple[str, int]]
Read = Callable[[str, int], Found]
"""Reads from a position: each way to understand what follows, and where that ends."""

_WORDS = re.compile(r"\s*(?:at|every)\s", re.IGNORECASE)
_HASH = "chosen from the job's name"
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def is_words(text: str) -> bool:
    """Whether a text is meant to be words: no cron expression begins so."""
    return _WORDS.match(text) is not None


def read_either(expression: object) -> Expression:
    """Parse a cron expression, or the words that describe one; raises `InvalidSchedule`."""
    if isinstance(expression, str) and is_words(expression):
        return read(expression_of(expression))
    return read(expression)


def expression_of(text: str) -> str:
    """The cron expression that a text describes; raises `InvalidSchedule`."""
    plain = " ".join(text.split())
    if len(plain) <= LONGEST:
        wanted = plain[:1].lower() + plain[1:]
        for fields in islice(_fields(wanted), _MOST_PROPOSALS):
            expression = " ".join(fields[1:] if fields[0] == "0" else fields)
            if _describes(expression, wanted):
                return expression
    raise InvalidSchedule(
        f"cannot read the schedule {shown(plain)}",
        hint='write it as Duly shows schedules, e.g. "at 02:30 on Monday to Friday" or "every 15 minutes", or as cron',
    )


def _describes(expression: str, words: str) -> bool:
    try:
        description = describe.cron(read(expression))
    except InvalidSchedule:
        return False
    return words in {description, description.removesuffix(" every day")}


def _fields(text: str) -> Iterator[tuple[str, ...]]:
    """The six fields of every expression that the text may describe."""
    for times, at in _time(text, 0):
        rest = text[at:].strip()
        for days in _date(rest):
            yield (*times, *days)


# --- reading parts of a text


def _literal(words: str, value: str = "") -> Read:
    def parse(text: str, at: int) -> Found:
        if text.startswith(words, at):
            yield value, at + len(words)

    return parse


def _pattern(pattern: str, value: Callable[[re.Match[str]], str]) -> Read:
    known = re.compile(pattern)

    def parse(text: str, at: int) -> Found:
        match = known.match(text, at)
        if match is not None:
            yield value(match), match.end()

    return parse


def _either(*parsers: Read) -> Read:
    def parse(text: str, at: int) -> Found:
        for each in parsers:
            yield from each(text, at)

    return parse


def _then(*parsers: Read) -> Read:
    """One after the other; their values are concatenated."""

    def parse(text: str, at: int) -> Found:
        if not parsers:
            yield "", at
            return
        first, rest = parsers[0], _then(*parsers[1:])
        for value, after in first(text, at):
            for others, end in rest(text, after):
                yield value + others, end

    return parse


def _listed(item: Read) -> Read:
    """A list such as "a, b and c": the values with commas between them; the longest list first."""

    def parse(text: str, at: int) -> Found:
        for value, after in item(text, at):
            for sign in (", ", " and "):
                if text.startswith(sign, after):
                    for others, end in parse(text, after + len(sign)):
                        yield f"{value},{others}", end
            yield value, after

    return parse


# --- the time of day


def _number(match: re.Match[str]) -> str:
    return str(int(match[1]))


def _stepped(unit: str, whole: str) -> Read:
    """`*` and `*/step`."""
    return _either(
        _pattern(rf"every {unit}\b", lambda _: "*"),
        _pattern(rf"every (\d+) {unit}s(?:, counted from the start of each {whole})?", lambda match: f"*/{match[1]}"),
    )


def _chosen(one: str) -> Read:
    return _either(
        _literal(f"{one} {_HASH}", "H"),
        _pattern(rf"{one} from (\d+) to (\d+) {re.escape(_HASH)}", lambda match: f"H({match[1]}-{match[2]})"),
    )


def _each(unit: str, whole: str) -> Read:
    """A list of seconds or minutes."""
    numbers = _listed(_pattern(r"(\d+)\b(?!:)", _number))
    return _listed(
        _either(
            _then(_pattern(rf"at {unit}s? ", lambda _: ""), numbers),
            _pattern(rf"every {unit} from (\d+) to (\d+)", lambda match: f"{match[1]}-{match[2]}"),
            _pattern(rf"every (\d+) {unit}s from (\d+) to (\d+)", lambda match: f"{match[2]}-{match[3]}/{match[1]}"),
            _then(_literal("at "), _chosen(f"a {unit}")),
            _hashed_steps(rf"every (\d+) {unit}s from ", _chosen(f"a {unit}")),
            _stepped(unit, whole),
        )
    )


def _hashed_steps(pattern: str, chosen: Read) -> Read:
    """Steps from a chosen value: "every 5 minutes from a minute chosen …" is `H/5`."""
    known = re.compile(pattern)

    def parse(text: str, at: int) -> Found:
        match = known.match(text, at)
        if match is not None:
            for value, end in chosen(text, match.end()):
                yield f"{value}/{match[1]}", end

    return parse


_ORDINAL = r"(\d+)(?:st|nd|rd|th)"
_SECONDS, _MINUTES = _each("second", "minute"), _each("minute", "hour")
_HOURS = _listed(
    _either(
        _pattern(r"every hour from (\d\d):00 to (\d\d):00", lambda match: f"{int(match[1])}-{int(match[2])}"),
        _pattern(
            rf"every {_ORDINAL} hour from (\d\d):00 to (\d\d):00",
            lambda match: f"{int(match[2])}-{int(match[3])}/{match[1]}",
        ),
        _hashed_steps(rf"every {_ORDINAL} hour from ", _chosen("an hour")),
        _chosen("an hour"),
        _pattern(rf"every {_ORDINAL} hour", lambda match: f"*/{match[1]}"),
        _literal("every hour", "*"),
        _pattern(r"(\d\d):00", _number),
    )
)
_SPREAD = _either(
    _then(
        _literal(" "),
        _listed(_pattern(r"from (\d\d):00 to (\d\d):59", lambda match: f"{int(match[1])}-{int(match[2])}")),
    ),
    _then(_literal(" during "), _HOURS),
    _literal("", "*"),
)

Times = Iterator[tuple[tuple[str, str, str], int]]


def _time(text: str, at: int) -> Times:
    """The fields for seconds, minutes and hours."""
    yield from _clock_times(text, at)
    for minutes, hours, end in _minutes_and_hours(text, at):
        yield ("0", minutes, hours), end
    for seconds, after in _SECONDS(text, at):
        each_minute = " of every minute"
        end = after + len(each_minute) if text.startswith(each_minute, after) else after
        for hours, last in _SPREAD(text, end):
            yield (seconds, "*", hours), last
        if text.startswith(", ", after):
            for minutes, hours, last in _minutes_and_hours(text, after + 2):
                yield (seconds, minutes, hours), last


_CLOCK = re.compile(r"at ((?:\d\d:\d\d(?::\d\d)?(?:, | and )?)+)")


def _clock_times(text: str, at: int) -> Times:
    """Times of day one by one: all combinations of some hours, minutes and seconds."""
    match = _CLOCK.match(text, at)
    if match is None:
        return
    listed = [tuple(map(int, each.split(":"))) for each in re.findall(r"[\d:]+", match[1])]
    times = {(*each, 0)[:3] for each in listed}
    values = [sorted({each[place] for each in times}) for place in range(3)]
    if set(product(*values)) == times:
        hours, minutes, seconds = (",".join(map(str, each)) for each in values)
        yield (seconds, minutes, hours), match.end()


_TIME_BETWEEN = re.compile(rf"at a time between (\d\d):00 and (\d\d):59 {re.escape(_HASH)}")


def _minutes_and_hours(text: str, at: int) -> Iterator[tuple[str, str, int]]:
    for hours, end in _stepped("hour", "day")(text, at):
        yield "0", hours, end
    for _, end in _literal(f"at a time {_HASH}")(text, at):
        yield "H", "H", end
    if (match := _TIME_BETWEEN.match(text, at)) is not None:
        yield "H", f"H({int(match[1])}-{int(match[2])})", match.end()
    for minutes, after in _MINUTES(text, at):
        for _, past in _literal(" past ")(text, after):
            for hours, end in _HOURS(text, past):
                yield minutes, hours, end
        for hours, end in _SPREAD(text, after):
            yield minutes, hours, end


# --- the days


def _named(names: tuple[str, ...], low: int, any_: str, one: str) -> Read:
    """Months and weekdays by name."""
    name = f"({'|'.join(names)})"

    def value(word: str) -> str:
        return str(names.index(word) + low)

    return _either(
        _pattern(rf"{name} to {name}", lambda match: f"{value(match[1])}-{value(match[2])}"),
        _pattern(name, lambda match: value(match[1])),
        _literal(any_, "*"),
        _literal(f"{one} {_HASH}", "H"),
        _pattern(
            rf"{one} from {name} to {name} {re.escape(_HASH)}",
            lambda match: f"H({value(match[1])}-{value(match[2])})",
        ),
        _pattern(rf"every {_ORDINAL} from {one} {re.escape(_HASH)}", lambda match: f"H/{match[1]}"),
        _pattern(
            rf"every {_ORDINAL} from {one} from {name} to {name} {re.escape(_HASH)}",
            lambda match: f"H({value(match[2])}-{value(match[3])})/{match[1]}",
        ),
    )


_MONTH = _listed(_named(_MONTHS, 1, "any month", "a month"))
_OF_MONTH = _either(_literal("the month", "*"), _MONTH)
_DAY = _listed(
    _either(
        _pattern(
            rf"every {_ORDINAL} day from the {_ORDINAL} to the {_ORDINAL}",
            lambda match: f"{match[2]}-{match[3]}/{match[1]}",
        ),
        _pattern(rf"the {_ORDINAL} to the {_ORDINAL}", lambda match: f"{match[1]}-{match[2]}"),
        _pattern(rf"the {_ORDINAL}", lambda match: match[1]),
        _literal("the last day", "L"),
        _literal("the last weekday", "LW"),
        _pattern(rf"a day \({_ORDINAL} to {_ORDINAL}, {re.escape(_HASH)}\)", lambda match: f"H({match[1]}-{match[2]})"),
        _pattern(
            rf"every {_ORDINAL} day from a day \({_ORDINAL} to {_ORDINAL}, {re.escape(_HASH)}\)",
            lambda match: f"H({match[2]}-{match[3]})/{match[1]}",
        ),
        _pattern(rf"every {_ORDINAL} day from the 1st", lambda match: f"*/{match[1]}"),
        _literal("every day", "*"),
    )
)


def _weekdays(text: str, at: int) -> Iterator[tuple[str, str | None, int]]:
    """Weekdays, the months in which they count if the text says so, and the end.

    "the last Friday of May" says both, as a text "5L@5"; the months after the first such item repeat it.
    """
    for value, end in _WEEKDAY(text, at):
        parts = [part.partition("@") for part in value.split(";")]
        months = next((month for _, sign, month in parts if sign), None)
        days = ",".join(day for day, _, _ in parts)
        yield days, months, end
        for step in range(2, 8):  # `*/2` is described by the names of its days
            if days == ",".join(dict.fromkeys(str(day % 7) for day in range(0, 8, step))):
                yield f"*/{step}", months, end


def _in_month(pattern: str, value: Callable[[re.Match[str]], str]) -> Read:
    known = re.compile(pattern)

    def parse(text: str, at: int) -> Found:
        match = known.match(text, at)
        if match is not None:
            for months, end in _OF_MONTH(text, match.end()):
                yield f"{value(match)}@{months}", end

    return parse


def _separated(item: Read) -> Read:
    """A list as in `_listed`, with semicolons, because the months of an item may be a list with commas."""

    def parse(text: str, at: int) -> Found:
        for value, after in item(text, at):
            for sign in (", ", " and "):
                if text.startswith(sign, after):
                    for others, end in parse(text, after + len(sign)):
                        yield f"{value};{others}", end
            yield value, after

    return parse


_DAY_NAME = f"({'|'.join(_WEEKDAYS)})"
_WEEKDAY = _separated(
    _either(
        _in_month(rf"the last {_DAY_NAME} of ", lambda match: f"{_WEEKDAYS.index(match[1])}L"),
        _in_month(rf"the {_ORDINAL} {_DAY_NAME} of ", lambda match: f"{_WEEKDAYS.index(match[2])}#{match[1]}"),
        _named(_WEEKDAYS, 0, "any day", "a day of the week"),
    )
)


def _date(text: str) -> Iterator[tuple[str, str, str]]:
    """The fields for days, months and weekdays of a text that is read to its end."""
    words = text.removeprefix("every day").strip()
    if not words:
        yield "*", "*", "*"
    for _, start in _literal("in ")(words, 0):
        yield from (("*", months, "*") for months, end in _MONTH(words, start) if end == len(words))
    for _, start in _literal("on ")(words, 0):
        yield from _on(words, start)


def _on(text: str, start: int) -> Iterator[tuple[str, str, str]]:
    for weekdays, months, after in _weekdays(text, start):
        if after == len(text):
            yield "*", months or "*", weekdays
        for _, at in _literal(" in ")(text, after):
            yield from (("*", found, weekdays) for found, end in _MONTH(text, at) if end == len(text))
    for days, after in _DAY(text, start):
        for months, at in _then(_literal(" of "), _OF_MONTH)(text, after):
            if at == len(text):
                yield days, months, "*"
            for _, then in _either(_literal(" if it is "), _literal(" or on "))(text, at):
                for weekdays, _, end in _weekdays(text, then):
                    if end == len(text):
                        yield days, months, weekdays
