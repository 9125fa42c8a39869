"""Threads, each with its own connection, and the calls that are sent to them.

A call is one function, sent whole: cancelling its caller can neither split it nor leave a transaction open. A
thread takes the calls that wait, runs them, and notifies the event loop once. It never waits to make a batch larger: a
single call starts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from duly.backends.marks import refused
from duly.backends.sql.moving.transfer import find_mark
from duly.backends.sqlite.connection import LockWait, close, connect_writer, is_busy, pauses, translated
from duly.backends.sqlite.dialect import DIALECT
from duly.backends.sqlite.files import Place, RuntimeDir
from duly.backends.sqlite.unit import Memory, SqliteTexts, SqliteUnit, driven
from duly.errors import BackendError, BackendUnavailable
from duly.ports import Clock

T = TypeVar("T")
Work = Callable[[SqliteUnit], Coroutine[Any, Any, T]]

_NO_TABLE = "no such table"
_LOOK_UP = 10.0  # how often an idle thread looks whether its loop is still there


class Call(Generic[T]):
    """One function on its way to a thread, and its outcome on the way back. Also keeps what the function raises."""

    __slots__ = ("_result", "error", "future", "work")

    def __init__(self, work: Work[T], future: asyncio.Future[T]) -> None:
        self.work = work
        self.future = future
        self.error: BaseException | None = None
        self._result: list[T] = []

    def run(self, unit: SqliteUnit) -> bool:
        """Call the function; whether it returned."""
        self.error = None
        with self:
            self._result = [driven(self.work(unit))]
        return self.error is None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self.error = error
        return True

    def deliver(self) -> None:
        """On the loop: hand the outcome to the caller, if it still waits."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self._result[0])


class Thread(ABC):
    """Runs calls from one event loop, on its own connection, opened at the first call."""

    def __init__(self, name: str, place: Place, namespace: str, clock: Clock) -> None:
        self.place = place
        self.memory = Memory()
        self._name = name
        self._texts = SqliteTexts(namespace)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._taken: list[Call[Any]] = []
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None
        self._stopped = False

    # --- on the loop

    def submit(self, work: Work[T]) -> asyncio.Future[T]:
        """Send a function to the thread; what it returns or raises comes back."""
        if self._stopped:
            raise BackendError(f"{self.place.path} is closed in this session")
        future: asyncio.Future[T] = self._loop.create_future()
        self._inbox.put(Call(work, future))
        if self._thread is None:
            self._start()
        return future

    def _start(self) -> None:
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Let the thread finish what was sent to it and close its connection."""
        self._stopped = True
        if self._thread is not None and self._ended is not None:
            self._inbox.put(None)
            await asyncio.shield(self._ended)

    def _over(self, error: BaseException | None) -> None:
        """The thread has ended; if by an error, all waiting callers get it, and the next call starts a new thread."""
        self._thread = None
        if error is not None:
            for call in [*self._taken, *self._waiting()]:
                call.error = error
                call.deliver()
        self._taken.clear()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    # --- on the thread

    def _main(self) -> None:
        fault: BackendError | None = None
        try:
            connection = self._connect()
            try:
                self._work_off(connection)
            finally:
                close(connection)
        except BackendError as error:
            fault = error
        except BaseException as error:  # noqa: BLE001  # callers that wait must get it, whatever it is
            fault = BackendUnavailable(f"{self._name} of {self.place.path} ended: {type(error).__name__}: {error}")
            fault.__cause__ = error
        self._tell(self._over, fault)

    def _work_off(self, connection: sqlite3.Connection) -> None:
        while (call := self._next()) is not None:
            self._taken.append(call)
            self._batch(connection, call)
            self._taken.clear()

    def _next(self) -> Call[Any] | None:
        """The next call; None when there will be no more: this session was closed, or its loop was."""
        while True:
            try:
                return self._inbox.get(timeout=_LOOK_UP)
            except Empty:
                if self._loop.is_closed():
                    self._orphaned()
                    return None

    def _orphaned(self) -> None:  # noqa: B027  # most have nothing to free
        """The loop was closed and this session was not: free what only the loop would have."""

    def _waiting(self) -> Iterator[Call[Any]]:
        """The calls that wait, until there are none, or the last one there will ever be."""
        while self._inbox.qsize():
            call = self._inbox.get()
            if call is None:
                self._inbox.put(None)
                return
            self._taken.append(call)
            yield call

    def _unit(self, connection: sqlite3.Connection) -> SqliteUnit:
        return SqliteUnit(connection, self._texts, self._clock, self.memory, DIALECT)

    def _translate(self, call: Call[Any], connection: sqlite3.Connection) -> None:
        if isinstance(call.error, sqlite3.Error):
            error = self._refusal(call.error, connection) or translated(call.error, self.place.path)
            error.__cause__ = call.error
            call.error = error

    def _refusal(self, error: sqlite3.Error, connection: sqlite3.Connection) -> BackendError | None:
        """The error of the store's mark, if the tables are missing because the store has moved."""
        if not str(error).startswith(_NO_TABLE):
            return None
        with contextlib.suppress(sqlite3.Error):
            mark = driven(find_mark(self._unit(connection)))
            return None if mark is None else refused(mark, str(self.place.path))
        return None

    def _tell(self, tell: Callable[..., None], *arguments: object) -> None:
        """Schedule a callback on the loop; a closed loop needs none."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell, *arguments)

    @abstractmethod
    def _connect(self) -> sqlite3.Connection: ...

    @abstractmethod
    def _batch(self, connection: sqlite3.Connection, first: Call[Any]) -> None: ...


def deliver(calls: Sequence[Call[Any]]) -> None:
    """On the loop: hand out the outcomes of a batch."""
    for call in calls:
        call.deliver()


class Reader(Thread):
    """Looks things up, each call in one snapshot that has everything committed before the call was made."""

    def __init__(
        self, name: str, place: Place, namespace: str, clock: Clock, connect: Callable[[Place], sqlite3.Connection]
    ) -> None:
        super().__init__(name, place, namespace, clock)
        self._open = connect

    def _connect(self) -> sqlite3.Connection:
        return self._open(self.place)

    def _batch(self, connection: sqlite3.Connection, first: Call[Any]) -> None:
        calls = [first, *self._waiting()]
        for call in calls:
            if not call.future.cancelled():
                self._read(connection, call)
        self._tell(deliver, calls)

    def _read(self, connection: sqlite3.Connection, call: Call[Any]) -> None:
        for _ in pauses(self.place.busy_timeout):  # another process may be recovering the log after a crash
            connection.execute("BEGIN")
            done = call.run(self._unit(connection))
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if done or not isinstance(call.error, sqlite3.Error) or not is_busy(call.error):
                break
        self._translate(call, connection)


_MOST_CALLS = 256
_LONGEST_BATCH = 0.005

_PAGES_TO_CHECKPOINT = 1000
_PAGES_PER_COMMIT = 6
_CHANGES_PER_PAGE = 12

_BARRIER = """
INSERT INTO {ns}_meta (name, value) VALUES ('barrier', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1
"""


class Writer(Thread):
    """Commits, and lets others know.

    After a commit that others should hear of, `ring` is called on the thread and `hear` on the loop. `checkpoint` is
    called on the loop when the log has grown so much that it should be copied into the file, `orphaned` on the
    thread when the loop is gone.
    """

    def __init__(
        self,
        place: Place,
        namespace: str,
        clock: Clock,
        runtime_dir: RuntimeDir,
        *,
        ring: Callable[[int], None],
        hear: Callable[[int], None],
        checkpoint: Callable[[], None],
        orphaned: Callable[[], None],
    ) -> None:
        super().__init__("duly-sqlite-writer", place, namespace, clock)
        self._lock_wait = LockWait(runtime_dir)
        self._ring = ring
        self._hear = hear
        self._checkpoint = checkpoint
        self._let_go = orphaned
        self._pages = 0.0
        self._changes = 0

    def _connect(self) -> sqlite3.Connection:
        return connect_writer(self.place)

    def _work_off(self, connection: sqlite3.Connection) -> None:
        try:
            super()._work_off(connection)
        finally:
            self._lock_wait.close()

    def _orphaned(self) -> None:
        self._let_go()

    # --- batches

    def _batch(self, connection: sqlite3.Connection, first: Call[Any]) -> None:
        unit = self._unit(connection)
        try:
            begin(connection, self._lock_wait, self.place)
        except BackendError as error:  # calls behind it would only wait for the same lock once more
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

    def _run_together(self, unit: SqliteUnit, first: Call[Any]) -> tuple[list[Call[Any]], bool]:
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
        """Run one call in its own transaction; returns what to notify others of."""
        unit = self._unit(connection)
        try:
            begin(connection, self._lock_wait, self.place)
        except BackendError as error:
            call.error = error
            return 0
        if call.run(unit) and self._commit(connection, [call]):
            self._secure(connection, unit, [call])
            return unit.rings
        self._roll_back(connection)
        self._translate(call, connection)
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

    def _secure(self, connection: sqlite3.Connection, unit: SqliteUnit, calls: Sequence[Call[Any]]) -> None:
        """Where at-most-once runs were lent, make that durable before the caller gets them.

        If that fails, the call fails: a repeat of the request returns the same claims and tries to sync again.
        """
        if not unit.barrier or self.place.synchronous == "full":
            return
        try:
            self._sync(connection, unit)
        except (sqlite3.Error, BackendError) as error:
            for call in calls:
                call.error = error
                self._translate(call, connection)

    def _sync(self, connection: sqlite3.Connection, unit: SqliteUnit) -> None:
        """A commit that syncs the log, and with it everything that was committed before."""
        connection.execute("PRAGMA synchronous=full")
        try:
            begin(connection, self._lock_wait, self.place)
            unit.execute(_BARRIER)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute(f"PRAGMA synchronous={self.place.synchronous}")

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.Error):  # then it is rolled back already, or the next BEGIN raises
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self.memory.forget()

    def _weigh(self, connection: sqlite3.Connection) -> None:
        """Estimate how much the log has grown: SQLite does not report it, and has its own limit."""
        changes = connection.total_changes
        self._pages += _PAGES_PER_COMMIT + (changes - self._changes) / _CHANGES_PER_PAGE
        self._changes = changes
        if self._pages > _PAGES_TO_CHECKPOINT:
            self._pages = 0.0
            self._tell(self._checkpoint)

    def _hand_over(self, calls: Sequence[Call[Any]], rings: int) -> None:
        self._tell(self._on_loop, calls, rings)
        if rings:
            self._ring(rings)

    def _on_loop(self, calls: Sequence[Call[Any]], rings: int) -> None:
        deliver(calls)
        if rings:
            self._hear(rings)


def begin(connection: sqlite3.Connection, lock_wait: LockWait, place: Place) -> None:
    """Open a write transaction, as soon as no other is open."""
    try:
        lock_wait.pass_through(lambda: connection.execute("BEGIN IMMEDIATE"), place.busy_timeout)
    except sqlite3.Error as error:
        raise translated(error, place.path) from error
