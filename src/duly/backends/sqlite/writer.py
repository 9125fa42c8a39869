"""The writer: one thread per session through which every change goes.

Group commit: the thread begins a transaction with the first call that waits, works off what else is there or comes
meanwhile, within bounds, and commits once. If one call raises, everything is rolled back and each is run alone, so that
a bad call never hurts its neighbours. Outcomes are handed over after the commit, never before.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from duly.backends.sqlite.connection import connect_writer
from duly.backends.sqlite.errors import translated
from duly.backends.sqlite.lock_wait import LockWait
from duly.backends.sqlite.runtime_dir import RuntimeDir
from duly.backends.sqlite.threads import Call, Thread, deliver
from duly.backends.sqlite.unit_of_work import UnitOfWork
from duly.backends.sqlite.url import Place
from duly.errors import BackendError
from duly.ports import Clock

_MOST_CALLS = 256
_LONGEST_BATCH = 0.005

_PAGES_TO_RELIEVE = 1000
_PAGES_PER_COMMIT = 6
_CHANGES_PER_PAGE = 12

_BARRIER = """
INSERT INTO {ns}_meta (name, value) VALUES ('barrier', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1
"""


class Writer(Thread):
    """Commits, and lets others know.

    After a commit that others should hear of, `ring` is called on the thread and `hear` on the loop. `relieve` is
    called on the loop when the log has grown so much that somebody should copy it into the file, `orphaned` on the
    thread when the loop is gone.
    """

    def __init__(
        self,
        place: Place,
        namespace: str,
        clock: Clock,
        meeting: RuntimeDir,
        *,
        ring: Callable[[int], None],
        hear: Callable[[int], None],
        relieve: Callable[[], None],
        orphaned: Callable[[], None],
    ) -> None:
        super().__init__("duly-sqlite-writer", place, namespace, clock)
        self._turnstile = LockWait(meeting)
        self._ring = ring
        self._hear = hear
        self._relieve = relieve
        self._let_go = orphaned
        self._pages = 0.0
        self._changes = 0

    def _connect(self) -> sqlite3.Connection:
        return connect_writer(self.place)

    def _work_off(self, connection: sqlite3.Connection) -> None:
        try:
            super()._work_off(connection)
        finally:
            self._turnstile.close()

    def _orphaned(self) -> None:
        self._let_go()

    # --- batches

    def _batch(self, connection: sqlite3.Connection, first: Call[Any]) -> None:
        unit = self._unit(connection)
        try:
            begin(connection, self._turnstile, self.place)
        except BackendError as error:  # whoever waits behind would only wait for the same lock once more
            calls = [first, *self._waiting()]
            for call in calls:
                call.error = error
            self._tell(deliver, calls)
            return
        calls, good = self._run_together(unit, first)
        if good and self._commit(connection, calls):
            self._secure(connection, unit, calls)
            self._hand_over(calls, unit.rings)
            self._weigh(connection)
            return
        self._roll_back(connection)
        for call in calls:
            self._hand_over([call], self._run_alone(connection, call))

    def _run_together(self, unit: UnitOfWork, first: Call[Any]) -> tuple[list[Call[Any]], bool]:
        """Run what waits, until one raises or it is enough; those that were run, and whether all returned."""
        calls: list[Call[Any]] = []
        call: Call[Any] | None = first
        until = time.monotonic() + _LONGEST_BATCH
        waiting = self._waiting()
        while call is not None:
            if not call.future.cancelled():
                calls.append(call)
                if not call.run(unit):
                    return calls, False
            if len(calls) >= _MOST_CALLS or time.monotonic() > until:
                break
            call = next(waiting, None)
        return calls, True

    def _run_alone(self, connection: sqlite3.Connection, call: Call[Any]) -> int:
        """Run one call in a transaction of its own; what others should hear of."""
        unit = self._unit(connection)
        try:
            begin(connection, self._turnstile, self.place)
        except BackendError as error:
            call.error = error
            return 0
        if call.run(unit) and self._commit(connection, [call]):
            self._secure(connection, unit, [call])
            return unit.rings
        self._roll_back(connection)
        self._translate(call)
        return 0

    @staticmethod
    def _commit(connection: sqlite3.Connection, calls: Sequence[Call[Any]]) -> bool:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            for call in calls:
                call.error = error
            return False
        return True

    def _secure(self, connection: sqlite3.Connection, unit: UnitOfWork, calls: Sequence[Call[Any]]) -> None:
        """Where at-most-once runs were lent, make that durable before anybody hears of it.

        If that fails nobody does: the same request brings the same claims again, and another attempt to sync.
        """
        if not unit.barrier or self.place.synchronous == "full":
            return
        try:
            self._sync(connection, unit)
        except (sqlite3.Error, BackendError) as error:
            for call in calls:
                call.error = error
                self._translate(call)

    def _sync(self, connection: sqlite3.Connection, unit: UnitOfWork) -> None:
        """A commit that syncs the log, and with it everything that was committed before."""
        connection.execute("PRAGMA synchronous=full")
        try:
            begin(connection, self._turnstile, self.place)
            unit.run(_BARRIER)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute(f"PRAGMA synchronous={self.place.synchronous}")

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.Error):  # then it is gone already, or the next BEGIN tells what is wrong
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self.memory.forget()

    def _weigh(self, connection: sqlite3.Connection) -> None:
        """Guess how much the log has grown. SQLite does not tell, and a guess is enough: it has a limit of its own."""
        changes = connection.total_changes
        self._pages += _PAGES_PER_COMMIT + (changes - self._changes) / _CHANGES_PER_PAGE
        self._changes = changes
        if self._pages > _PAGES_TO_RELIEVE:
            self._pages = 0.0
            self._tell(self._relieve)

    def _hand_over(self, calls: Sequence[Call[Any]], rings: int) -> None:
        self._tell(self._on_loop, calls, rings)
        if rings:
            self._ring(rings)

    def _on_loop(self, calls: Sequence[Call[Any]], rings: int) -> None:
        deliver(calls)
        if rings:
            self._hear(rings)


def begin(connection: sqlite3.Connection, turnstile: LockWait, place: Place) -> None:
    """Open a transaction for writing, as soon as nobody else has one."""
    try:
        turnstile.pass_through(lambda: connection.execute("BEGIN IMMEDIATE"), place.busy_timeout)
    except sqlite3.Error as error:
        raise translated(error, place.path) from error
