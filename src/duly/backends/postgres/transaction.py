"""Transactions that a user's writes and the completion of a run share.

`Block` is `ctx.transaction()`: a transaction on a separate connection, ended for good at its deadline, whatever the
block is waiting for then. Its last statement completes the run under its fence, so a stale attempt cannot commit.
`Joined` is a transaction that the user has begun on their own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NoReturn, Self

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from duly.backends.postgres.adding import add
from duly.backends.postgres.connection import Connection
from duly.backends.postgres.dialect import DIALECT
from duly.backends.postgres.errors import FOREIGN, translated
from duly.backends.postgres.session import Session
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.sql.settling import settle_each
from duly.backends.sql.unit import Memory
from duly.errors import BackendError, BackendUnavailable, ClaimLost
from duly.model import Claim, Put, Run, Succeeded, from_micros
from duly.rules import settling

# The server ends a transaction whose owner is stopped or gone, some time after the owner's deadline.
_LAST_WORD = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)"
_STANDS = """
SELECT 1 FROM {ns}.runs AS r INNER JOIN {ns}.claims AS c ON c.seq = r.seq
WHERE r.id = $1 AND c.fence = $2 FOR UPDATE OF c
"""


class Block:
    """Entered, it is the transaction; left, it has committed with the run's completion, or nothing has happened."""

    def __init__(self, session: Session, claim: Claim, timeout: float) -> None:
        self._session = session
        self._claim = claim
        self._seconds = timeout
        self._alarm = asyncio.timeout(None)
        self._stack = AsyncExitStack()
        self._connection: Connection | None = None
        self._unit: PostgresUnit | None = None

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await _execute(self._open, sql, parameters)

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        connection = self._open
        assert self._unit is not None
        try:
            return await add(self._unit, runs, None)
        except FOREIGN as exc:
            raise self._translated(exc, connection) from exc

    @property
    def connection(self) -> Connection:
        """The driver's own connection, for what `execute` does not do. Only the block may end the transaction."""
        return self._open

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise BackendError("this transaction is not open: use it inside its `async with` block")
        return self._connection

    # --- entering and leaving

    async def __aenter__(self) -> Self:
        connection = await self._stack.enter_async_context(self._session.connections.apart())
        try:
            await connection.execute("BEGIN")
            await connection.fetch(_LAST_WORD, f"{round(self._seconds * 1000) + 1000}ms")
        except BaseException as exc:
            connection.terminate()
            await self._stack.aclose()
            if isinstance(exc, FOREIGN):
                raise self._translated(exc, connection) from exc
            raise
        self._connection = connection
        self._unit = self._session.unit(connection)
        await self._alarm.__aenter__()
        self._alarm.reschedule(asyncio.get_running_loop().time() + self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._open
        late = False
        try:
            await self._alarm.__aexit__(kind, error, trace)
        except TimeoutError:
            late = True
        self._connection = None
        try:
            if error is None and not late:
                await self._finish(connection)
            else:
                await self._roll_back(connection)
        finally:
            await self._stack.aclose()
        if late:
            raise TimeoutError(f"the transaction took longer than {self._seconds} s and was rolled back") from error

    async def _finish(self, connection: Connection) -> None:
        """Complete and commit, even if this task is cancelled meanwhile: otherwise the outcome would be unknown."""
        task = asyncio.ensure_future(self._complete(connection))
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(self._session.connections.place.timeout, connection.terminate)
        cancelled = False
        try:
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:
                    cancelled = True
        finally:
            alarm.cancel()
        task.result()
        if cancelled:
            raise asyncio.CancelledError

    async def _complete(self, connection: Connection) -> None:
        try:
            if not connection.is_in_transaction():
                self._refuse()
            await self._settle()
            await connection.execute("COMMIT")
        except FOREIGN as exc:
            connection.terminate()
            raise self._translated(exc, connection) from exc
        except BaseException:
            await self._roll_back(connection)
            raise

    @staticmethod
    def _refuse() -> NoReturn:
        raise BackendError("the transaction is gone: a statement in the block has ended it")

    async def _settle(self) -> None:
        claim, unit = self._claim, self._unit
        assert unit is not None
        await unit.locks.groups_of([claim.run.id])  # before the row: the same order everywhere
        if await unit.one(_STANDS, claim.run.id, claim.fence) is None:
            raise ClaimLost(
                f"run {claim.run.id} is no longer this attempt's (fence {claim.fence}): the transaction is rolled back"
            )
        at = from_micros(await unit.at(None))
        await settle_each(unit, [settling.settle(claim.run, claim.fence, Succeeded(), at, dice=0.0)])
        await unit.notify()

    async def _roll_back(self, connection: Connection) -> None:
        """Roll back: by a statement, or by closing the connection."""
        idle = not connection.is_closed() and connection.is_in_transaction()
        try:
            if idle:
                await connection.execute("ROLLBACK", timeout=self._session.connections.place.timeout)
        except (*FOREIGN, TimeoutError):  # a statement of the block is still at work, or the server is gone
            connection.terminate()

    def _translated(self, exc: BaseException, connection: Connection) -> BackendError:
        if connection.is_closed():
            return BackendUnavailable(f"{self._session.connections.place.shown} was lost during a transaction: {exc}")
        return translated(exc, self._session.connections.place.shown)


class Joined:
    """The user's transaction, on the user's own connection to the same database."""

    def __init__(self, session: Session, connection: Any) -> None:
        if not isinstance(connection, asyncpg.Connection | PoolConnectionProxy):
            raise BackendError(
                f"within() takes an asyncpg connection to {session.connections.place.shown},"
                f" not {type(connection).__name__}"
            )
        self._session = session
        self._connection: Any = connection

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return await _execute(self._connection, sql, parameters)

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        self._session.connections.check()
        if not self._connection.is_in_transaction():
            raise BackendError(
                "no transaction is open on that connection: begin one first (`async with connection.transaction()`)"
            )
        # The user may roll back unnoticed, so nothing is remembered from this transaction.
        unit = PostgresUnit(self._connection, self._session.connections, Memory(), DIALECT)
        try:
            answers = await add(unit, runs, None)
            await unit.notify()
        except FOREIGN as exc:
            raise translated(exc, self._session.connections.place.shown) from exc
        return answers


async def _execute(connection: Any, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
    if isinstance(parameters, Mapping):
        raise BackendError("PostgreSQL numbers its parameters ($1, $2, …): give them as a sequence")
    return [tuple(row) for row in await connection.fetch(sql, *parameters)]
