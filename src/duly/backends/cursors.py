"""Cursors: where a listing continues, as numbers that the store issued. Any other text is refused."""

from __future__ import annotations

from datetime import datetime

from duly.errors import ConfigurationError, shown
from duly.model import is_run_id, to_micros

_DIGITS = 18  # what a signed 64-bit number holds for certain
_AFTER_IDS = "~"  # sorts behind every id


def cursor_of(*parts: int | str) -> str:
    """These numbers, or a number and an id, as a cursor."""
    return ".".join(map(str, parts))


def numbers_in(cursor: str, count: int) -> tuple[int, ...]:
    """The numbers of a cursor; ConfigurationError if it does not have that many."""
    parts = cursor.split(".")
    if len(parts) != count or not all(part.isascii() and part.isdigit() and len(part) <= _DIGITS for part in parts):
        raise _refused(cursor)
    return tuple(map(int, parts))


def place_in(cursor: str) -> tuple[int, str]:
    """The microseconds and the id of a cursor that has both; ConfigurationError if it does not."""
    first, _, run_id = cursor.partition(".")
    if not is_run_id(run_id):
        raise _refused(cursor)
    [micros] = numbers_in(first.removeprefix("-"), 1)
    return (-micros if first.startswith("-") else micros), run_id


def coming_after(cursor: str | None, now: datetime) -> tuple[int, str]:
    """The ready time and the id after which `Queue.read_ahead` continues; without a cursor, after all that is ready."""
    return (to_micros(now), _AFTER_IDS) if cursor is None else place_in(cursor)


def _refused(cursor: str) -> ConfigurationError:
    return ConfigurationError(f"cursor={shown(cursor)}: not the `next` of an earlier page")
