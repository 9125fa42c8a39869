"""Transactions that a user's writes and the completion of a run share.

`Block` is `ctx.transaction()`: a transaction on a connection of its own, one at a time per session, ended for good when
its time is up, whatever the block is waiting for then. `Joined` is a transaction that the user has begun elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from duly.backends.sqlite.adding import add
from duly.backends.sqlite.errors import translated
from duly.backends.sqlite.session import Gear, Session
from duly.backends.sqlite.sql_templates import SqlTemplates
from duly.backends.sqlite.unit_of_work import Memory, Row, UnitOfWork
from duly.errors import BackendError
from duly.model import Claim, Put, Run

T = TypeVar("T")

_FIRST_LOOK = 0.005
_LAST_LOOK = 30.0


class Block:
    """Entered, it is the transaction; left, it has committed with the run's completion, or nothing has happened."""

    def __init__(self, session: Session, claim: Claim, timeout: float) -> None:
        self._session = session
        self._claim = claim
        self._seconds = timeout
        self._alarm = asyncio.timeout(None)
        self._gear: Gear | None = None

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        transactor = self._open.transactor
        return await transactor.submit(lambda _: transactor.execute(sql, parameters))

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        transactor = self._open.transactor
        return await transactor.submit(lambda unit: transactor.put(unit, runs))

    @property
    def _open(self) -> Gear:
        if self._gear is None:
            raise BackendError("this transaction is not open: use it inside its `async with` block")
        return self._gear

    # --- entering and leaving

    async def __aenter__(self) -> Self:
        gear = self._session.gear
        self._session.refuse_inside_a_block("another transaction")
        await gear.one_block.acquire()
        try:
            await gear.transactor.submit(gear.transactor.begin)
        except BaseException:
            # It may yet begin: the next block comes after it has been rolled back.
            gear.transactor.submit(gear.transactor.roll_back).add_done_callback(lambda _: gear.one_block.release())
            raise
        self._gear = gear
        self._session.enter_block(self)
        await self._alarm.__aenter__()
        self._alarm.reschedule(asyncio.get_running_loop().time() + self._seconds)
        return self

    @property
    def is_open(self) -> bool:
        return self._gear is not None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gear = self._open
        if not self._alarm.expired():
            self._alarm.reschedule(None)
        try:
            await self._end(gear, commit=error is None and not self._alarm.expired())
        finally:
            self._gear = None
            gear.one_block.release()
            with contextlib.suppress(TimeoutError):
                await self._alarm.__aexit__(kind, error, trace)
        if self._alarm.expired() and (error is None or isinstance(error, asyncio.CancelledError)):
            raise TimeoutError(f"the transaction took longer than {self._seconds} s and was rolled back") from error

    async def _end(self, gear: Gear, *, commit: bool) -> None:
        if commit:
            completing = gear.transactor.submit(lambda unit: gear.transactor.complete(unit, self._claim))
            completing.add_done_callback(lambda _: _ring(gear, completing))
            await self._to_the_end(completing)
        else:
            gear.transactor.interrupt()
            await self._to_the_end(gear.transactor.submit(gear.transactor.roll_back))

    async def _to_the_end(self, step: asyncio.Future[T]) -> T:
        """Wait for a step that must not be left half done, even if this task is cancelled meanwhile."""
        cancelled = False
        while not step.done():
            try:
                await asyncio.wait([step])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled and not self._alarm.expired() and step.exception() is None:
            raise asyncio.CancelledError
        return step.result()


def _ring(gear: Gear, completing: asyncio.Future[int]) -> None:
    """Wake those of this session who wait for the run, even if the block's own task does not come so far."""
    if not completing.cancelled() and completing.exception() is None:
        gear.notifier.ring(completing.result())


class Joined:
    """A transaction that is the user's, on a connection of theirs to the same file, on the thread it belongs to."""

    def __init__(self, session: Session, connection: sqlite3.Connection) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise BackendError(f"within() takes a sqlite3.Connection to {session.place.path}, not {connection!r}")
        self._session = session
        self._connection = connection
        self._texts = SqlTemplates(session.namespace)

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        return self._connection.execute(sql, parameters).fetchall()

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        gear = self._session.gear
        self._check_file()
        # What is remembered of a transaction that may be rolled back unseen is worth nothing: a new memory each time.
        unit = UnitOfWork(Plain(self._connection), self._texts, self._session.clock, Memory())
        try:
            self._check_transaction()
            answers = add(unit, runs, unit.at(None))
        except sqlite3.Error as error:
            raise translated(error, self._session.place.path) from error
        if unit.rings:
            self._ring_when_over(gear, unit.rings, _FIRST_LOOK)
        return answers

    def _check_file(self) -> None:
        [(_, _, path), *_] = Plain(self._connection).execute("PRAGMA database_list").fetchall()
        if not path or not self._session.place.path.samefile(path):
            raise BackendError(f"that connection is to {path or 'memory'}, not to {self._session.place.path}")

    def _check_transaction(self) -> None:
        if self._connection.in_transaction:
            return
        if self._connection.isolation_level is None:
            raise BackendError("no transaction is open on that connection: BEGIN one first, and COMMIT it afterwards")
        self._connection.execute("BEGIN IMMEDIATE")

    def _ring_when_over(self, gear: Gear, rings: int, after: float) -> None:
        """The user commits when they like: look now and then whether they have, and wake those who wait."""

        def look() -> None:
            try:
                going_on = self._connection.in_transaction
            except sqlite3.Error:  # closed
                going_on = False
            if going_on and after < _LAST_LOOK:
                self._ring_when_over(gear, rings, after * 2)
            else:
                gear.notifier.ring(rings)
                gear.notifier.ring_others(rings)

        asyncio.get_running_loop().call_later(after, look)


class Plain:
    """A connection whose rows are plain tuples, whatever its owner has set."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        return self._cursor().executemany(sql, parameters)

    def _cursor(self) -> sqlite3.Cursor:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor
