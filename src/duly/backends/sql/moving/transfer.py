"""The transfer store on SQL: snapshots, loading, and the mark of a store that is not in use.

The mark is a row of the table of schema steps, with a number that no step has: versions of Duly that do not know it
refuse to open the store as one of a newer version. A store that is closed or moved has other names for its tables, so
that every statement of every session fails, and only then looks for the mark: working stores pay nothing for it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime

from duly.backends.marks import mark_text, not_empty, not_importing, read_mark, refused
from duly.backends.sql import operating
from duly.backends.sql.moving.dumping import Read, SqlSnapshot
from duly.backends.sql.moving.loading import load
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import STORE, Session, Unit
from duly.model import from_micros
from duly.model.transfer import Loaded, MarkKind, StoreMark, kind_of
from duly.ports import FROZEN, Snapshot

MARK = 1_000_000  # the version of the mark among the steps of the schema
MARK_END = ".contract"  # a step that older versions must not ignore
_CLOSED = "moved_"  # what the names of tables begin with in a closed store
# What is about the store itself, and names that sessions remember by their numbers.
_KEPT = frozenset({"meta", "pulse", "queues", "kinds", "policies"})
_PATIENCE = 120.0  # seconds for a batch of records

_CREATED = re.compile(r"^CREATE TABLE \{ns\}[._](\w+)", re.MULTILINE)
FIND_MARK = f"SELECT name FROM {{ns}}.schema WHERE version = {MARK}"
_SET_MARK = f"INSERT INTO {{ns}}.schema (version, name, applied_at) VALUES ({MARK}, $1, $2)"
_REMOVE_MARK = f"DELETE FROM {{ns}}.schema WHERE version = {MARK}"
_NEW_EPOCHS = "UPDATE {ns}.epochs SET epoch = epoch + 1"


def tables_in(scripts: Iterable[str]) -> list[str]:
    """The names of the tables that the steps of a schema create."""
    return [name for script in scripts for name in _CREATED.findall(script)]


def mark_of(name: str) -> StoreMark | None:
    """The mark in the name of a step."""
    return read_mark(name.removesuffix(MARK_END))


async def find_mark(unit: Unit) -> StoreMark | None:
    """The mark of a store that has a table of steps."""
    row = await unit.one(FIND_MARK)
    return None if row is None else mark_of(row[0])


class SqlTransfer(ABC):
    """The part of the store that moves it."""

    _session: Session[Unit]
    url: str

    # --- what the dialects supply

    @abstractmethod
    def _snapshot(self) -> AbstractAsyncContextManager[Read]:
        """A transaction that sees one moment and changes nothing."""

    @abstractmethod
    def _closing(self) -> AbstractAsyncContextManager[Read]:
        """A transaction beside which nobody changes anything; it commits if the block is left normally."""

    @abstractmethod
    async def _tables(self, unit: Unit) -> list[str]:
        """The names of all tables of the schema, without that of its steps."""

    @abstractmethod
    async def _has_schema(self, unit: Unit) -> bool:
        """Whether there is a table of steps."""

    # --- reading

    @asynccontextmanager
    async def snapshot(self, since: datetime | None = None) -> AsyncIterator[Snapshot]:
        async with self._snapshot() as read:
            yield await SqlSnapshot.of(read, since)

    # --- loading

    async def mark(self) -> StoreMark | None:
        async def task(unit: Unit) -> StoreMark | None:
            return await find_mark(unit) if await self._has_schema(unit) else None

        return await self._session.read(task)

    async def begin_load(self, source: str) -> None:
        mark = await self.mark()
        if mark is None:
            async with self.snapshot() as snapshot:
                first = await snapshot.dump(None, 1)
            if first.records:
                raise not_empty(self.url, kind_of(first.records[0]))
        elif mark.kind is not MarkKind.IMPORTING:
            raise refused(mark, self.url)

        async def task(unit: Unit) -> None:
            if mark is not None:
                await self._clear(unit)
            await self._set_mark(unit, MarkKind.IMPORTING, source)

        await self._session.write(STORE, task, _PATIENCE)

    async def _clear(self, unit: Unit) -> None:
        for table in await self._tables(unit):
            if table not in _KEPT:
                await unit.run(f"DELETE FROM {{ns}}.{table}")
        await unit.run("UPDATE {ns}.queues SET paused = {false}")

    async def _set_mark(self, unit: Unit, kind: MarkKind, address: str, fence: int = 0) -> None:
        now = await unit.at(None)
        await unit.run(_REMOVE_MARK)
        text = mark_text(StoreMark(kind, address, from_micros(now), fence))
        await unit.run(_SET_MARK, f"{text}{MARK_END}", now)

    async def load(self, records: Sequence[Loaded]) -> None:
        async def task(unit: Unit) -> None:
            mark = await find_mark(unit)
            if mark is None or mark.kind is not MarkKind.IMPORTING:
                raise not_importing(self.url)
            await load(unit, records)
            unit.rings = 0

        await self._session.write(STORE, task, _PATIENCE)

    async def end_load(self, fence: int) -> None:
        async def task(unit: Unit) -> None:
            await unit.dialect.raise_fence(unit, fence)
            await unit.run(_REMOVE_MARK)

        await self._session.write(STORE, task)

    # --- leaving

    async def freeze(self) -> None:
        async def task(unit: Unit) -> None:
            await operating.pause(unit, FROZEN)
            await unit.run(_NEW_EPOCHS)

        await self._session.write(STORE, task)

    async def thaw(self) -> None:
        async def task(unit: Unit) -> None:
            if await operating.resume(unit, FROZEN):
                unit.rings |= WORK

        await self._session.write(STORE, task)

    @asynccontextmanager
    async def closing(self, address: str, since: datetime) -> AsyncIterator[Snapshot]:
        async with self._closing() as within:
            snapshot = await SqlSnapshot.of(within, since)
            yield snapshot

            async def move(unit: Unit) -> None:
                for table in await self._tables(unit):
                    await unit.run(f"ALTER TABLE {{ns}}.{table} RENAME TO {{renamed}}{_CLOSED}{table}")
                await self._set_mark(unit, MarkKind.MOVED, address, snapshot.fence)

            await within(move)

    async def reopen(self) -> None:
        mark = await self.mark()
        if mark is None or mark.kind is MarkKind.IMPORTING:
            return

        async def task(unit: Unit) -> None:
            for table in await self._tables(unit):
                await unit.run(f"ALTER TABLE {{ns}}.{_CLOSED}{table} RENAME TO {{renamed}}{table}")
            await unit.run(_REMOVE_MARK)

        await self._session.write(STORE, task, _PATIENCE)
