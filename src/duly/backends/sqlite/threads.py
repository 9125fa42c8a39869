"""Threads that own a connection each, and the calls that are sent to them.

A call is one function, sent whole: cancelling whoever awaits it can neither split it nor leave a transaction open. A
thread takes what is waiting, works it off, and tells the event loop once. Nothing is waited for to make a batch
bigger: a lone call is begun at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from duly.backends.sqlite.connection import close
from duly.backends.sqlite.errors import is_busy, translated
from duly.backends.sqlite.lock_wait import pauses
from duly.backends.sqlite.sql_templates import SqlTemplates
from duly.backends.sqlite.unit_of_work import Memory, UnitOfWork
from duly.backends.sqlite.url import Place
from duly.errors import BackendError, BackendUnavailable
from duly.ports import Clock

T = TypeVar("T")
Work = Callable[[UnitOfWork], T]

_LOOK_UP = 10.0  # how often an idle thread looks whether its loop is still there


class Call(Generic[T]):
    """One function on its way to a thread, and its outcome on the way back. Also keeps what the function raises."""

    __slots__ = ("_result", "error", "future", "work")

    def __init__(self, work: Work[T], future: asyncio.Future[T]) -> None:
        self.work = work
        self.future = future
        self.error: BaseException | None = None
        self._result: list[T] = []

    def run(self, unit: UnitOfWork) -> bool:
        """Call the function; whether it returned."""
        self.error = None
        with self:
            self._result = [self.work(unit)]
        return self.error is None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self.error = error
        return True

    def deliver(self) -> None:
        """On the loop: hand the outcome to whoever still awaits it."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self._result[0])


class Thread(ABC):
    """Works off calls from one event loop, on a connection of its own that it opens when the first call comes."""

    def __init__(self, name: str, place: Place, namespace: str, clock: Clock) -> None:
        self.place = place
        self.memory = Memory()
        self._name = name
        self._texts = SqlTemplates(namespace)
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
        """The thread has ended; if by an error, everybody who waits for it gets that, and the next call starts anew."""
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
        except BaseException as error:  # noqa: BLE001  # whoever waits must hear of it, whatever it is
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

    def _unit(self, connection: sqlite3.Connection) -> UnitOfWork:
        return UnitOfWork(connection, self._texts, self._clock, self.memory)

    def _translate(self, call: Call[Any]) -> None:
        if isinstance(call.error, sqlite3.Error):
            error = translated(call.error, self.place.path)
            error.__cause__ = call.error
            call.error = error

    def _tell(self, tell: Callable[..., None], *arguments: object) -> None:
        """Have something called on the loop; a loop that is closed has nobody left to tell."""
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
        for _ in pauses(self.place.busy_timeout):  # a log that a crash left behind is being read by somebody
            connection.execute("BEGIN")
            done = call.run(self._unit(connection))
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if done or not isinstance(call.error, sqlite3.Error) or not is_busy(call.error):
                break
        self._translate(call)
