"""A unit of work on SQLite. Its coroutines never suspend: they are driven to their end on the session's thread.

The fast paths use the plain methods (`select`, `execute`, …). Rows to insert travel as many VALUES of one statement,
which halves their cost; their number is split into a few sizes, so that those statements stay prepared too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from duly.backends.sql import unit as sql
from duly.backends.sql.unit import Delete, Insert, Row, Update
from duly.backends.sqlite.interning import Names
from duly.backends.sqlite.texts import SqliteTexts, present
from duly.model import to_micros
from duly.ports import Clock

T = TypeVar("T")

_SIZES = (100, 25, 5, 1)
_FENCES_PER_SECOND = 1 << 20
_HIGHEST_START = 1 << 52

_SET_META = "INSERT INTO {ns}.meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_META = "SELECT value FROM {ns}.meta WHERE name = ?"


def driven(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a unit of work on SQLite must not wait for anything")


class Statements(Protocol):
    """What a unit needs of a connection."""

    def execute(self, sql: str, parameters: Sequence[Any], /) -> sqlite3.Cursor: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> sqlite3.Cursor: ...


class Memory(sql.Memory):
    """What a session remembers between units. Forgotten whenever a transaction is rolled back."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Names()
        self.fenced = False

    def forget(self) -> None:
        """Remember nothing: numbers learnt in a transaction that was rolled back do not exist."""
        self.names = Names()
        self.lent.clear()
        self.fenced = False


class SqliteUnit(sql.Unit):
    """Wraps one connection for the length of a batch of calls."""

    memory: Memory

    def __init__(
        self, connection: Statements, texts: SqliteTexts, clock: Clock, memory: Memory, dialect: sql.Dialect[Any]
    ) -> None:
        super().__init__()
        self._connection = connection
        self._execute = connection.execute
        self._texts = texts
        self._clock = clock
        self.dialect = dialect
        self.namespace = texts.namespace
        self.memory = memory
        self.names = memory.names
        self.barrier = False

    # --- the clock

    def micros(self, now: datetime | None) -> int:
        """The instant this call happens at, in microseconds."""
        return to_micros(now or self._clock.now())

    def moment(self, now: datetime | None) -> int | None:
        return self.micros(now)

    async def at(self, now: datetime | None) -> int:
        return self.micros(now)

    # --- statements, at once

    def execute(self, sql: str, *parameters: Any) -> int:
        """Execute a statement; how many rows it changed."""
        return self._execute(self._texts[sql], parameters).rowcount

    def select(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a query."""
        return self._execute(self._texts[sql], parameters).fetchall()

    def select_one(self, sql: str, *parameters: Any) -> Row | None:
        """The first row of a query, if there is one."""
        rows = self._execute(self._texts[sql], parameters).fetchall()  # to its end: one cut short keeps its lock
        return rows[0] if rows else None

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once per row. For what is rare."""
        self._connection.executemany(self._texts[sql], rows)

    def insert_many(self, sql: str, rows: Sequence[Sequence[Any]], *shared: Any) -> int:
        """Insert rows with few statements; how many were inserted.

        `{rows}` in the statement stands for the VALUES; `?1`, `?2`, … in a row's template are the shared parameters,
        plain `?` the row's own. None and bytes are slow to bind: templates say NULL, rows carry bytearrays.
        """
        return sum(cursor.rowcount for cursor in self._multiplied(sql, rows, *shared))

    def _multiplied(self, sql: str, rows: Sequence[Sequence[Any]], *shared: Any) -> Iterable[sqlite3.Cursor]:
        start = 0
        for size in _SIZES:
            while len(rows) - start >= size:
                parameters = [*shared]
                for row in rows[start : start + size]:
                    parameters += row
                yield self._execute(self._texts.multiplied(sql, size), parameters)
                start += size

    # --- the same for those who would wait elsewhere

    async def all(self, sql: str, *parameters: Any) -> list[Row]:
        return self.select(sql, *map(_bound, parameters))

    async def one(self, sql: str, *parameters: Any) -> Row | None:
        return self.select_one(sql, *map(_bound, parameters))

    async def run(self, sql: str, *parameters: Any) -> None:
        self.select(sql, *map(_bound, parameters))

    async def insert(self, statement: Insert, rows: Sequence[Sequence[Any]]) -> list[Row]:
        here = [present(statement, row) for row in rows]
        cursors = self._multiplied(self._texts.of(statement), here)
        return [row for cursor in cursors for row in cursor.fetchall()]

    async def change(self, statement: Update | Delete, rows: Sequence[Sequence[Any]]) -> set[Any]:
        text = self._texts.of(statement)
        if isinstance(statement, Update):
            return {row[0] for cursor in self._multiplied(text, rows) for row in cursor.fetchall()}
        return {row[0] for row in rows if self.execute(text, *row)}

    # --- fences and other numbers

    def fences(self, count: int) -> int:
        """The first of `count` fences that nobody has ever had; all stay below 2**53.

        A session begins at the clock, 2**20 to the second: should the file be an older copy or have lost its tail, what
        was given out since then does not come again.
        """
        first = 1 + (self.meta("fence") or 0)
        if not self.memory.fenced:
            first = max(first, min(self.micros(None) * _FENCES_PER_SECOND // 1_000_000, _HIGHEST_START))
            self.memory.fenced = True
        self.set_meta("fence", first + count - 1)
        return first

    def meta(self, name: str) -> int | None:
        """One of the store's own numbers."""
        row = self.select_one(_META, name)
        return None if row is None else int(row[0])

    def set_meta(self, name: str, value: int) -> None:
        self.execute(_SET_META, name, value)


def _bound(value: Any) -> Any:
    return as_list(value) if isinstance(value, list) else value


def as_list(values: Iterable[Any]) -> str:
    """Values as the JSON array that `json_each` takes."""
    return msgspec.json.encode(list(values)).decode()
