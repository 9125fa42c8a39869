"""Transactions that a user's writes and the completion of a run share.

`Block` is `ctx.transaction()`: a transaction on a separate connection, one at a time per session, ended for good at its
deadline, whatever the block is waiting for then. `Joined` is a transaction that the user has begun elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from duly.backends.sql.unit import Row
from duly.backends.sqlite.connection import LockWait, connect_writer, translated
from duly.backends.sqlite.dialect import DIALECT, add
from duly.backends.sqlite.files import Place, RuntimeDir
from duly.backends.sqlite.settling import settle
from duly.backends.sqlite.threads import Call, Thread, begin, deliver
from duly.backends.sqlite.unit import Memory, SqliteTexts, SqliteUnit, driven
from duly.errors import BackendError, ClaimLost, DulyError
from duly.model import Claim, Put, Run, Succeeded
from duly.ports import Clock
from duly.rules import settling

if TYPE_CHECKING:
    from duly.backends.sqlite.session import Resources, Session

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
        self._resources: Resources | None = None

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        transactor = self._open.transactor
        return await transactor.submit(lambda _: transactor.execute(sql, parameters))

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        transactor = self._open.transactor
        return await transactor.submit(lambda unit: transactor.put(unit, runs))

    @property
    def _open(self) -> Resources:
        if self._resources is None:
            raise BackendError("this transaction is not open: use it inside its `async with` block")
        return self._resources

    # --- entering and leaving

    async def __aenter__(self) -> Self:
        resources = self._session.resources
        self._session.refuse_inside_a_block("another transaction")
        await resources.one_block.acquire()
        try:
            await resources.transactor.submit(resources.transactor.begin)
        except BaseException:
            # It may yet begin: the next block comes after it has been rolled back.
            resources.transactor.submit(resources.transactor.roll_back).add_done_callback(
                lambda _: resources.one_block.release()
            )
            raise
        self._resources = resources
        self._session.enter_block(self)
        await self._alarm.__aenter__()
        self._alarm.reschedule(asyncio.get_running_loop().time() + self._seconds)
        return self

    @property
    def is_open(self) -> bool:
        return self._resources is not None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        resources = self._open
        if not self._alarm.expired():
            self._alarm.reschedule(None)
        try:
            await self._end(resources, commit=error is None and not self._alarm.expired())
        finally:
            self._resources = None
            resources.one_block.release()
            with contextlib.suppress(TimeoutError):
                await self._alarm.__aexit__(kind, error, trace)
        if self._alarm.expired() and (error is None or isinstance(error, asyncio.CancelledError)):
            raise TimeoutError(f"the transaction took longer than {self._seconds} s and was rolled back") from error

    async def _end(self, resources: Resources, *, commit: bool) -> None:
        if commit:
            completing = resources.transactor.submit(lambda unit: resources.transactor.complete(unit, self._claim))
            completing.add_done_callback(lambda _: _ring(resources, completing))
            await self._to_the_end(completing)
        else:
            resources.transactor.interrupt()
            await self._to_the_end(resources.transactor.submit(resources.transactor.roll_back))

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


def _ring(resources: Resources, completing: asyncio.Future[int]) -> None:
    """Wake the tasks of this session that wait for the run, even if the block's own task is cancelled first."""
    if not completing.cancelled() and completing.exception() is None:
        resources.notifier.ring(completing.result())


class Joined:
    """The user's transaction, on the user's own connection to the same file, on the thread it belongs to."""

    def __init__(self, session: Session, connection: sqlite3.Connection) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise BackendError(f"within() takes a sqlite3.Connection to {session.place.path}, not {connection!r}")
        self._session = session
        self._connection = connection
        self._texts = SqliteTexts(session.namespace)

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        return self._connection.execute(sql, parameters).fetchall()

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        resources = self._session.resources
        self._check_file()
        # The user may roll back unnoticed, so nothing is remembered: a new memory each time.
        unit = SqliteUnit(Plain(self._connection), self._texts, self._session.clock, Memory(), DIALECT)
        try:
            self._check_transaction()
            answers = driven(add(unit, runs, unit.micros(None)))
        except sqlite3.Error as error:
            raise translated(error, self._session.place.path) from error
        if unit.rings:
            self._ring_when_over(resources, unit.rings, _FIRST_LOOK)
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

    def _ring_when_over(self, resources: Resources, rings: int, after: float) -> None:
        """The user commits at any time: check periodically whether they have, and wake waiting tasks."""

        def look() -> None:
            try:
                going_on = self._connection.in_transaction
            except sqlite3.Error:  # closed
                going_on = False
            if going_on and after < _LAST_LOOK:
                self._ring_when_over(resources, rings, after * 2)
            else:
                resources.notifier.ring(rings)
                resources.notifier.ring_others(rings)

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


# A user's COMMIT must not reuse our prepared statement: SQLite would not call the authorizer again.
_COMMIT = f"COMMIT -- {secrets.token_hex(8)}"
_ROLLBACK = f"ROLLBACK -- {secrets.token_hex(8)}"

_STANDS = """
SELECT 1 FROM {ns}_runs AS r CROSS JOIN {ns}_claims AS c ON c.seq = r.seq WHERE c.fence = ? AND r.id = ?
"""


class TransactionThread(Thread):
    """Its methods are called on the thread, as the functions of calls; only `interrupt` comes from the loop."""

    def __init__(
        self, place: Place, namespace: str, clock: Clock, runtime_dir: RuntimeDir, *, ring: Callable[[int], None]
    ) -> None:
        super().__init__("duly-sqlite-transaction", place, namespace, clock)
        self._lock_wait = LockWait(runtime_dir)
        self._ring = ring
        self._connection: sqlite3.Connection | None = None
        self._guarded = False
        self._rings = 0

    def _connect(self) -> sqlite3.Connection:
        connection = connect_writer(self.place)
        connection.set_authorizer(self._authorize)
        self._connection = connection
        return connection

    def _work_off(self, connection: sqlite3.Connection) -> None:
        try:
            super()._work_off(connection)
        finally:
            self._connection = None
            self._lock_wait.close()

    def _batch(self, connection: sqlite3.Connection, first: Call[Any]) -> None:
        if not first.future.cancelled():
            first.run(self._unit(connection))
        self._tell(deliver, [first])

    def interrupt(self) -> None:
        """Stop the statement that is running, if one is."""
        if self._connection is not None:
            self._connection.interrupt()

    def _authorize(self, action: int, *_: str | None) -> int:
        """The user's statements may do everything but end the transaction."""
        return sqlite3.SQLITE_DENY if self._guarded and action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    # --- the steps of a block

    async def begin(self, _: SqliteUnit) -> None:
        self._rings = 0
        begin(self._open, self._lock_wait, self.place)

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        """Run the user's statement."""
        self._guarded = True
        try:
            return self._open.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_AUTH:
                raise BackendError(
                    f"{sql!r} is not possible here: leave the block to commit, raise to roll back"
                ) from error
            raise
        finally:
            self._guarded = False

    async def put(self, unit: SqliteUnit, runs: Sequence[Run]) -> list[Put]:
        answers = await add(unit, runs, unit.micros(None))
        self._rings |= unit.rings
        return answers

    async def complete(self, unit: SqliteUnit, claim: Claim) -> int:
        """Check the fence, complete the run, commit; returns what to notify others of. On failure, roll back."""
        try:
            await self._complete(unit, claim)
        except sqlite3.Error as error:
            await self.roll_back(unit)
            raise translated(error, self.place.path) from error
        except DulyError:
            await self.roll_back(unit)
            raise
        rings = self._rings | unit.rings
        self._ring(rings)
        return rings

    async def _complete(self, unit: SqliteUnit, claim: Claim) -> None:
        if not self._open.in_transaction:
            raise BackendError(
                "the transaction is gone: its session was closed, or a statement made SQLite roll it back"
            )
        if unit.select_one(_STANDS, claim.fence, claim.run.id) is None:
            raise ClaimLost(
                f"run {claim.run.id} is no longer this attempt's (fence {claim.fence}): the transaction is rolled back"
            )
        await settle(unit, [settling.settle(claim.run, claim.fence, Succeeded(), self._clock.now(), dice=0.0)])
        self._open.execute(_COMMIT)

    async def roll_back(self, _: SqliteUnit) -> None:
        if self._open.in_transaction:
            self._open.execute(_ROLLBACK)
        self.memory.forget()
