"""Places in a TOML text: where each key and each value stands.

The standard library reads TOML and forgets the places. This walks over a text that it has accepted already, so that
nothing needs to be checked here: only strings, brackets and comments are told apart.
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


class Place(Struct, frozen=True):
    """A line and a column, from 1."""

    line: int
    column: int


class Places:
    """Where keys and values stand, by their path: the names of tables and keys, and the numbers of elements."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys, self._values = _Walk(text).places()

    def key(self, path: Path) -> Place:
        """Where a key is written first; of a path that is not in the text, where the nearest part of it is."""
        return self._place(self._keys, path)

    def value(self, path: Path) -> Place:
        """Where a value begins; a table that has only a header is there."""
        return self._place(self._values if path in self._values else self._keys, path)

    def _place(self, found: dict[Path, int], path: Path) -> Place:
        while path and path not in found:
            path = path[:-1]
        return place_of(self._text, found.get(path, 0))


def place_of(text: str, offset: int) -> Place:
    """The line and column of a character."""
    return Place(text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1)


class _Walk:
    """One pass over a valid text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._keys: dict[Path, int] = {}
        self._values: dict[Path, int] = {}
        self._elements: dict[Path, int] = {}  # of arrays of tables: the number of the latest

    def places(self) -> tuple[dict[Path, int], dict[Path, int]]:
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
        self._at += 1  # the sign =
        self._value(path)

    def _named(self, table: Path, parts: list[tuple[str, int]]) -> Path:
        """The path of a key inside a table; every part of it is written down where it stands first."""
        path = table
        for part, offset in parts:
            if path in self._elements:  # the latest table of an array is meant
                path = (*path, self._elements[path])
            path = (*path, part)
            self._keys.setdefault(path, offset)
        return path

    def _key(self) -> Iterator[tuple[str, int]]:
        """The parts of a dotted key, and where they stand."""
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
        raise AssertionError("a text that tomllib has read has no string without an end")

    def _skip(self, what: re.Pattern[str]) -> int:
        """Go over what matches; where that ends."""
        if (found := what.match(self._text, self._at)) is not None:
            self._at = found.end()
        return self._at
