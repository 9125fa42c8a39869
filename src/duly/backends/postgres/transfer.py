"""Transactions that last for several calls: a snapshot to read from, and the last one before a store has moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg

from duly.backends.postgres import migrations
from duly.backends.postgres.connection import Connection
from duly.backends.postgres.errors import translated
from duly.backends.postgres.session import Session
from duly.backends.sql.moving.dumping import Read
from duly.backends.sql.moving.transfer import SqlTransfer, tables_in
from duly.backends.sql.unit import Task, Unit

T = TypeVar("T")

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_HAS_SCHEMA = "SELECT to_regclass($1) IS NOT NULL"
_LOCK_ATTEMPTS = 30
# Readers have to wait, too: a transaction that has read one table and waits to write another one would be in the way of
# the new names.
_CLOSE = "BEGIN; SET LOCAL lock_timeout = '2s'; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"


class PostgresTransfer(SqlTransfer):
    """The part of the store that moves it."""

    _server: Session

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Read]:
        async with self._transaction() as connection:
            await connection.execute(_SNAPSHOT)
            yield self._reader(connection)
            await connection.execute("ROLLBACK")

    @asynccontextmanager
    async def _closing(self) -> AsyncIterator[Read]:
        async with self._transaction() as connection:
            await self._lock(connection)
            yield self._reader(connection)
            await connection.execute("COMMIT")

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        """A connection for one transaction, which an exception ends by closing it."""
        try:
            async with self._server.connections.apart() as connection:
                yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as exc:  # an OSError may be that of a file being written
            raise translated(exc, self._server.connections.place.shown) from exc

    def _reader(self, connection: Connection) -> Read:
        async def read(task: Task[T], /) -> T:
            return await task(self._server.unit(connection))

        return read

    async def _lock(self, connection: Connection) -> None:
        """Lock all tables. Transactions under way may lock them in another order: then try again."""
        schema = self._server.connections.texts.schema
        names = ", ".join(f"{schema}.{table}" for table in _tables())
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                await connection.execute(_CLOSE.replace("{tables}", names))
            except (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError):
                await connection.execute("ROLLBACK")
                if attempt + 1 == _LOCK_ATTEMPTS:
                    raise
                await asyncio.sleep(0.1)
            else:
                return

    async def _tables(self, unit: Unit) -> list[str]:
        return _tables()

    async def _has_schema(self, unit: Unit) -> bool:
        schema = self._server.connections.texts.schema
        row = await unit.one(_HAS_SCHEMA, f"{schema}.schema")
        return row is not None and bool(row[0])


def _tables() -> list[str]:
    return tables_in(step.script for step in migrations.steps())
