"""Cursors: where a listing goes on, as numbers that its store gave out. What it did not give out is refused."""

from __future__ import annotations

from duly.errors import ConfigurationError, shown

_DIGITS = 18  # what a signed 64-bit number holds for certain


def cursor_of(*numbers: int) -> str:
    """These numbers as a cursor."""
    return ".".join(map(str, numbers))


def numbers_in(cursor: str, count: int) -> tuple[int, ...]:
    """The numbers of a cursor; ConfigurationError if it is not one of that many."""
    parts = cursor.split(".")
    if len(parts) != count or not all(part.isascii() and part.isdigit() and len(part) <= _DIGITS for part in parts):
        raise ConfigurationError(f"cursor={shown(cursor)}: not the `next` of an earlier page")
    return tuple(map(int, parts))
