"""Transactions that last for several calls: a snapshot to read from, and the last one before a store has moved."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from duly.backends.sql.moving.dumping import Read
from duly.backends.sql.moving.transfer import SqlTransfer, tables_in
from duly.backends.sql.unit import Task, Unit
from duly.backends.sqlite.connection import close, connect_reader, connect_writer, patiently, translated
from duly.backends.sqlite.files import Place
from duly.backends.sqlite.session import Session, has_schema, steps
from duly.backends.sqlite.threads import Call, Thread, deliver
from duly.ports import Clock

T = TypeVar("T")
_Connect = Callable[[Place], sqlite3.Connection]


class SqliteTransfer(SqlTransfer):
    """The part of the store that moves it."""

    _file: Session

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Read]:
        thread = self._thread(connect_reader, "BEGIN")
        try:
            yield thread.read
        finally:
            await thread.stop()

    @asynccontextmanager
    async def _closing(self) -> AsyncIterator[Read]:
        thread = self._thread(connect_writer, "BEGIN IMMEDIATE")
        try:
            yield thread.read
            await thread.read(_commit)
        finally:
            await thread.stop()

    def _thread(self, connect: _Connect, begin: str) -> OpenTransaction:
        return OpenTransaction(self._file.place, self._file.namespace, self._file.clock, connect, begin)

    async def _tables(self, unit: Unit) -> list[str]:
        return tables_in(step.script for step in steps())

    async def _has_schema(self, unit: Any) -> bool:
        return has_schema(unit)


async def _commit(unit: Unit) -> None:
    await unit.run("COMMIT")


class OpenTransaction(Thread):
    """Runs all calls in one transaction. It is rolled back when the thread stops, unless a call has committed it."""

    def __init__(self, place: Place, namespace: str, clock: Clock, connect: _Connect, begin: str) -> None:
        super().__init__("duly-sqlite-transfer", place, namespace, clock)
        self._open = connect
        self._begin = begin

    def read(self, task: Task[T]) -> Awaitable[T]:
        """Do a task in the transaction."""
        return self.submit(task)

    def _connect(self) -> sqlite3.Connection:
        connection = self._open(self.place)
        try:
            patiently(lambda: connection.execute(self._begin), self.place.busy_timeout)
        except sqlite3.Error as error:
            close(connection)
            raise translated(error, self.place.path) from error
        return connection

    def _batch(self, connection: sqlite3.Connection, first: Call[Any]) -> None:
        if not first.future.cancelled() and not first.run(self._unit(connection)):
            self._translate(first, connection)
        self._tell(deliver, [first])
