"""A unit of work: what a function that runs on a session's thread is given. Statements, names, the clock, the fences.

A statement is a constant with `{ns}` where the namespace goes; its text is made once. Lists travel as one JSON array
(`IN (SELECT value FROM json_each(?))`), so that one prepared statement serves every length and the whole list is worked
off in one step without giving the interpreter lock away in between. Rows to insert travel as many VALUES of one
statement, which halves their cost; their number is split into a few sizes, so that those statements stay prepared too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from duly.backends.sqlite.interning import Names
from duly.backends.sqlite.sql_templates import SqlTemplates
from duly.model import to_micros
from duly.ports import Clock

# What a unit tells those who wait for a change.
WORK = 1
ENDED = 2
SHARED = 4

Row = tuple[Any, ...]
_SIZES = (100, 25, 5, 1)
_FENCES_PER_SECOND = 1 << 20
_HIGHEST_START = 1 << 52

_SET_META = "INSERT INTO {ns}_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_META = "SELECT value FROM {ns}_meta WHERE name = ?"


class Statements(Protocol):
    """What a unit needs of a connection."""

    def execute(self, sql: str, parameters: Sequence[Any], /) -> sqlite3.Cursor: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> sqlite3.Cursor: ...


class Memory:
    """What a session remembers between units. Forgotten whenever a transaction is rolled back."""

    def __init__(self) -> None:
        self.names = Names()
        self.lent: dict[int, tuple[str, int]] = {}
        self.fenced = False

    def forget(self) -> None:
        """Remember nothing: numbers learnt in a transaction that was rolled back do not exist."""
        self.names = Names()
        self.lent.clear()
        self.fenced = False


class UnitOfWork:
    """Wraps one connection for the length of a batch of calls."""

    def __init__(self, connection: Statements, texts: SqlTemplates, clock: Clock, memory: Memory) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._texts = texts
        self._clock = clock
        self.memory = memory
        self.names = memory.names
        self.rings = 0
        self.barrier = False

    def at(self, now: datetime | None) -> int:
        """The instant this call happens at, in microseconds."""
        return to_micros(now or self._clock.now())

    # --- statements

    def run(self, sql: str, *parameters: Any) -> int:
        """Execute a statement; how many rows it changed."""
        return self._execute(self._texts[sql], parameters).rowcount

    def all(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a query."""
        return self._execute(self._texts[sql], parameters).fetchall()

    def one(self, sql: str, *parameters: Any) -> Row | None:
        """The first row of a query, if there is one."""
        rows = self._execute(self._texts[sql], parameters).fetchall()  # to its end: one cut short keeps its lock
        return rows[0] if rows else None

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once per row. For what is rare."""
        self._connection.executemany(self._texts[sql], rows)

    def insert(self, sql: str, rows: Sequence[Sequence[Any]], *shared: Any) -> int:
        """Insert rows with few statements; how many were inserted.

        `{rows}` in the statement stands for the VALUES; `?1`, `?2`, … in a row's template are the shared parameters,
        plain `?` the row's own. None and bytes are slow to bind: templates say NULL, rows carry bytearrays.
        """
        inserted = start = 0
        for size in _SIZES:
            while len(rows) - start >= size:
                parameters = [*shared]
                for row in rows[start : start + size]:
                    parameters += row
                inserted += self._execute(self._texts.multiplied(sql, size), parameters).rowcount
                start += size
        return inserted

    # --- fences and other numbers

    def fences(self, count: int) -> int:
        """The first of so many fences that nobody has ever had; all stay below 2**53.

        A session begins at the clock, 2**20 to the second: should the file be an older copy or have lost its tail, what
        was given out since then does not come again.
        """
        first = 1 + (self.meta("fence") or 0)
        if not self.memory.fenced:
            first = max(first, min(self.at(None) * _FENCES_PER_SECOND // 1_000_000, _HIGHEST_START))
            self.memory.fenced = True
        self.set_meta("fence", first + count - 1)
        return first

    def meta(self, name: str) -> int | None:
        """One of the store's own numbers."""
        row = self.one(_META, name)
        return None if row is None else int(row[0])

    def set_meta(self, name: str, value: int) -> None:
        self.run(_SET_META, name, value)


def as_list(values: Iterable[Any]) -> str:
    """Values as the JSON array that `json_each` takes."""
    return msgspec.json.encode(list(values)).decode()
