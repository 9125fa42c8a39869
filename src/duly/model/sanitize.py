"""Sanitize values from outside at the point where they enter Duly.

Handlers, hooks, clients and files may pass anything: text that is not UTF-8, exceptions whose `__str__` raises,
numbers that are not finite. What passes through here can be stored by every backend and read by every node: text is
valid UTF-8 without NUL and of bounded length, numbers are finite. Only the `checked_…` functions raise: their callers
can still refuse the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from duly.errors import ConfigurationError, shown
from duly.model.outcome import Failure
from duly.model.run import Progress

MOST_TYPE = 200
MOST_MESSAGE = 4_000
MOST_TRACEBACK = 20_000
MOST_NOTE = 500
MOST_REASON = 2_000
MOST_ACTOR = 200  # the name of whoever changes something
MOST_LISTED = 10_000
MOST_HEADERS = 16
MOST_HEADER = 1_000

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")  # PostgreSQL keeps no NUL in text; a surrogate alone is not UTF-8


def text(value: str, most: int) -> str:
    """The text with unstorable characters escaped and its middle left out if it is longer than `most`."""
    value = str.__str__(value)  # an exact str: a subclass may override len() and slicing
    if len(value) > most:
        # Cut first: escaping a text of megabytes only to throw it away would block the event loop.
        half = (most - 40) // 2
        value = f"{value[:half]}\n… {len(value) - 2 * half} characters …\n{value[len(value) - half :]}"
    return _UNSTORABLE.sub(_escaped, value)


def line(value: str, most: int) -> str:
    """The text of one line: without line breaks at its end, and if it is too long, without its middle."""
    value = str.__str__(value).rstrip("\r\n")
    if len(value) > most:
        half = (most - 40) // 2
        value = f"{value[:half]} … {len(value) - 2 * half} characters … {value[len(value) - half :]}"
    return value if value.isascii() and "\0" not in value else _UNSTORABLE.sub(_escaped, value)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def text_of(value: object, most: int = MOST_MESSAGE) -> str:
    """The result of `str(value)`, also if the object's `__str__` raises."""
    try:
        said = str(value)
    except BaseException as broken:  # noqa: BLE001  # not even SystemExit from a __str__ may hide what it describes
        said = f"<{type_name_of(value)} whose text raised {type_name_of(broken)}>"
    return text(said, most)


def type_name_of(value: object) -> str:
    """The qualified name of an object's class."""
    try:
        return text(str(type(value).__qualname__), MOST_TYPE)
    except BaseException:  # noqa: BLE001  # a metaclass may compute the name
        return "object"


def failure(type_name: str, message: str, traceback: str = "") -> Failure:
    """A failure that can be stored, from texts of unknown origin."""
    return Failure(
        type=text_of(type_name, MOST_TYPE),
        message=text_of(message, MOST_MESSAGE),
        traceback=text_of(traceback, MOST_TRACEBACK),
    )


def progress(done: object, total: object = None, note: object = "") -> Progress | None:
    """Progress as a handler reports it; None if `done` is not a finite number."""
    figure = number(done)
    if figure is None:
        return None
    return Progress(figure, None if total is None else number(total), text_of(note, MOST_NOTE))


def number(value: object) -> float | None:
    """A finite number of any numeric type as a float; None for anything else."""
    if isinstance(value, str | bytes | bytearray):
        return None
    try:
        found = float(value)  # type: ignore[arg-type]  # accepts Decimal, Fraction and numpy's numbers
    except BaseException:  # noqa: BLE001  # __float__ is the user's code
        return None
    return float.__float__(found) if math.isfinite(found) else None


def checked_text(what: str, value: object, most: int, *, empty: bool = True) -> str:
    """The text if every backend can store it as it is, else a ConfigurationError: for keys, which must not change."""
    if not isinstance(value, str) or len(value) > most or not (empty or value):
        least = 0 if empty else 1
        raise ConfigurationError(f"{what}={shown(value)}: expected a string of {least} to {most} characters")
    if found := _UNSTORABLE.search(value):
        raise ConfigurationError(
            f"{what}={shown(value)}: the character {found[0]!r} cannot be stored; leave out NUL and lone surrogates"
        )
    return str.__str__(value)


def checked_whole(what: str, value: object, least: int, most: int) -> int:
    """The whole number if it is within its bounds, else a ConfigurationError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{what}={shown(value)}: expected a whole number from {least} to {most}")
    return int(value)


def headers(value: Mapping[str, str] | None) -> dict[str, str] | None:
    """The trace headers of a submission, limited in number and length: a bad trace must not prevent a run."""
    if not value:
        return None
    kept = list(value.items())[:MOST_HEADERS]
    return {text(name, MOST_HEADER): text(word, MOST_HEADER) for name, word in kept} or None
