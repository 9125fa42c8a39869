"""The positions of keys and values in a TOML text.

The standard library parses TOML without positions. This module scans a text that is known to be valid TOML, so it only
has to distinguish strings, brackets and comments.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from msgspec import Struct

Path = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_VALUE = re.compile(r"[^,\]}#\r\n]+")
_STRINGS = (
    re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)


class Position(Struct, frozen=True):
    """A line and a column, counted from 1."""

    line: int
    column: int


class Positions:
    """The positions of keys and values by path: the names of tables and keys, and the indexes of elements."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys, self._values = _Scanner(text).positions()

    def key(self, path: Path) -> Position:
        """The first position of a key; for a path that is not in the text, the position of its nearest parent."""
        return self._position(self._keys, path)

    def value(self, path: Path) -> Position:
        """The position of a value; for a table, of its header."""
        return self._position(self._values if path in self._values else self._keys, path)

    def _position(self, found: dict[Path, int], path: Path) -> Position:
        while path and path not in found:
            path = path[:-1]
        return position_of(self._text, found.get(path, 0))


def position_of(text: str, offset: int) -> Position:
    """The position of a character."""
    return Position(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


class _Scanner:
    """One pass over a valid text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._keys: dict[Path, int] = {}
        self._values: dict[Path, int] = {}
        self._elements: dict[Path, int] = {}  # of arrays of tables: the index of the latest

    def positions(self) -> tuple[dict[Path, int], dict[Path, int]]:
        table: Path = ()
        while self._skip(_BETWEEN) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._keys, self._values

    def _header(self) -> Path:
        many = self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        path = self._named((), list(self._key()))
        if many:
            self._elements[path] = number = self._elements.get(path, -1) + 1
            path = (*path, number)
            self._keys[path] = self._at
        self._at += 2 if many else 1
        return path

    def _pair(self, table: Path) -> None:
        path = self._named(table, list(self._key()))
        self._at += 1  # the equals sign
        self._value(path)

    def _named(self, table: Path, parts: list[tuple[str, int]]) -> Path:
        """The path of a key inside a table. The first position of each part is recorded."""
        path = table
        for part, offset in parts:
            if path in self._elements:  # the key belongs to the latest table of an array
                path = (*path, self._elements[path])
            path = (*path, part)
            self._keys.setdefault(path, offset)
        return path

    def _key(self) -> Iterator[tuple[str, int]]:
        """The parts of a dotted key, and their offsets."""
        while True:
            start = self._skip(_BLANK)
            if self._text[start] in "\"'":
                yield tomllib.loads(f"key = {self._string()}")["key"], start
            else:
                yield self._text[start : self._skip(_BARE_KEY)], start
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return
            self._at += 1

    def _value(self, path: Path) -> None:
        start = self._skip(_BLANK)
        self._values[path] = start
        match self._text[start]:
            case '"' | "'":
                self._string()
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case _:
                self._skip(_PLAIN_VALUE)

    def _array(self, path: Path) -> None:
        self._at += 1
        number = 0
        while self._text[self._skip(_BETWEEN)] != "]":
            self._value((*path, number))
            number += 1
            if self._text[self._skip(_BETWEEN)] == ",":
                self._at += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._text[self._skip(_BETWEEN)] != "}":
            self._pair(path)
            if self._text[self._skip(_BETWEEN)] == ",":
                self._at += 1
        self._at += 1

    def _string(self) -> str:
        start = self._at
        for form in _STRINGS:
            if (found := form.match(self._text, start)) is not None:
                self._at = found.end()
                return found[0]
        raise AssertionError("valid TOML has no unterminated string")

    def _skip(self, what: re.Pattern[str]) -> int:
        """Skip what matches; returns the new offset."""
        if (found := what.match(self._text, self._at)) is not None:
            self._at = found.end()
        return self._at
