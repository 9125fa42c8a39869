"""The thread behind `transaction`: a connection of its own, on which one block's statements run one after the other."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duly.backends.sqlite.adding import add
from duly.backends.sqlite.connection import connect_writer
from duly.backends.sqlite.errors import translated
from duly.backends.sqlite.lock_wait import LockWait
from duly.backends.sqlite.runtime_dir import RuntimeDir
from duly.backends.sqlite.settling import settle
from duly.backends.sqlite.threads import Call, Thread, deliver
from duly.backends.sqlite.unit_of_work import Row, UnitOfWork
from duly.backends.sqlite.url import Place
from duly.backends.sqlite.writer import begin
from duly.errors import BackendError, ClaimLost, DulyError
from duly.model import Claim, Put, Run, Succeeded
from duly.ports import Clock
from duly.rules import settling

# A user's COMMIT must not find ours among the prepared statements: it would not be asked for permission again.
_COMMIT = f"COMMIT -- {secrets.token_hex(8)}"
_ROLLBACK = f"ROLLBACK -- {secrets.token_hex(8)}"

_STANDS = """
SELECT 1 FROM {ns}_runs AS r CROSS JOIN {ns}_claims AS c ON c.seq = r.seq WHERE c.fence = ? AND r.id = ?
"""


class TransactionThread(Thread):
    """Its methods are called on the thread, as the functions of calls; only `interrupt` comes from the loop."""

    def __init__(
        self, place: Place, namespace: str, clock: Clock, meeting: RuntimeDir, *, ring: Callable[[int], None]
    ) -> None:
        super().__init__("duly-sqlite-transaction", place, namespace, clock)
        self._turnstile = LockWait(meeting)
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
            self._turnstile.close()

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

    def begin(self, _: UnitOfWork) -> None:
        self._rings = 0
        begin(self._open, self._turnstile, self.place)

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        """Run a statement of the user's."""
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

    def put(self, unit: UnitOfWork, runs: Sequence[Run]) -> list[Put]:
        answers = add(unit, runs, unit.at(None))
        self._rings |= unit.rings
        return answers

    def complete(self, unit: UnitOfWork, claim: Claim) -> int:
        """Check the fence, complete the run, commit; what others should hear of. If it cannot be, roll back."""
        try:
            self._complete(unit, claim)
        except sqlite3.Error as error:
            self.roll_back(unit)
            raise translated(error, self.place.path) from error
        except DulyError:
            self.roll_back(unit)
            raise
        rings = self._rings | unit.rings
        self._ring(rings)
        return rings

    def _complete(self, unit: UnitOfWork, claim: Claim) -> None:
        if not self._open.in_transaction:
            raise BackendError(
                "the transaction is gone: its session was closed, or a statement made SQLite roll it back"
            )
        if unit.one(_STANDS, claim.fence, claim.run.id) is None:
            raise ClaimLost(
                f"run {claim.run.id} is no longer this attempt's (fence {claim.fence}): the transaction is rolled back"
            )
        settle(unit, [settling.settle(claim.run, claim.fence, Succeeded(), self._clock.now(), dice=0.0)])
        self._open.execute(_COMMIT)

    def roll_back(self, _: UnitOfWork) -> None:
        if self._open.in_transaction:
            self._open.execute(_ROLLBACK)
        self.memory.forget()
