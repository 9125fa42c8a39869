"""Connections: how one is made, and how units of work share one, one after another.

A session has a connection for each purpose (claiming, settling, …), made when it is needed. A piece of work has a
deadline: when it passes, the connection is dropped, since the state of the server is unknown. A cancelled caller
returns at once, but its work continues to its end: it takes effect completely or not at all, and leaves no transaction
open.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from ssl import SSLContext
from typing import TYPE_CHECKING, Literal, TypeVar

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from duly.backends.backoff import Backoff
from duly.backends.marks import refused
from duly.backends.postgres.errors import FOREIGN, spoils, translated, unreachable
from duly.backends.postgres.unit import PostgresTexts
from duly.backends.postgres.url import Place
from duly.backends.sql.moving.transfer import FIND_MARK, mark_of
from duly.errors import BackendError, BackendUnavailable
from duly.model import to_micros
from duly.ports import StoreClock, SystemClock
from duly.ports.waiting import noticed
from duly.rules.lease_limits import longest_call

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection  # which is generic for type checkers only

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

_IDLE_APART = 8
# Plans are kept for as long as a connection, and may be made while a table is empty: even then they must use an index.
# Behind a pooler, where nothing is kept, every plan is made for the current tables. A process that was stopped in the
# middle of a transaction must not block others while it is stopped: the server ends it (see `_idle_limit`).
_SETTINGS = """
SET jit = off; SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_mergejoin = off;
"""
_IDLE = "SET {local} idle_in_transaction_session_timeout = {milliseconds}"
# Behind a pooler, settings last for one transaction: one message begins the transaction and applies them.
_BEGIN_POOLED = "BEGIN ISOLATION LEVEL READ COMMITTED; "
_LONGEST_IDLE = 5.0
_inherited: list[object] = []  # so that the garbage collector does not close them


def _idle_limit(lease: float | None) -> float:
    """Seconds that one of our transactions may be idle.

    A claim that it has locked cannot be renewed meanwhile: the rest of the lease must be long enough to renew it.
    """
    return _LONGEST_IDLE if lease is None else min(_LONGEST_IDLE, longest_call(lease))


class Connector:
    """Connects to the server that currently accepts writes, and detects a pooler in front of it."""

    def __init__(self, place: Place, lease: float | None) -> None:
        self.place = place
        self.backoff = Backoff()
        self._idle = round(_idle_limit(lease) * 1000)
        self.pooled = place.pooler == "transaction"
        self._tls: SSLContext | Literal["disable", "prefer"] = "disable"

    async def prepare(self) -> None:
        """Read files such as certificates from disk."""
        match self.place.tls.mode:
            case "disable" | "prefer" as driver_knows:
                self._tls = driver_knows
            case _:
                self._tls = await asyncio.to_thread(self.place.tls.context)

    async def connect(self, *, tuned: bool = True) -> Connection:
        """A new connection: tuned for the statements of this package, or as the server sets it."""
        self.backoff.check()
        try:
            made = await self._connect(tuned=tuned)
        except FOREIGN as exc:
            failure = self._failure(exc)
            if isinstance(failure, BackendUnavailable):
                self.backoff.failed(failure)
            raise failure from exc
        self.backoff.passed()
        return made

    async def _connect(self, *, tuned: bool) -> Connection:
        made = await self._made()
        late = asyncio.get_running_loop().call_later(self.place.timeout, made.terminate)
        try:
            if self.place.pooler == "auto" and not self.pooled:
                self.pooled = await self._is_pooled(made)
                if self.pooled:
                    made.terminate()
                    return await self._made()
            if tuned and not self.pooled:
                await made.execute(_SETTINGS + _IDLE.format(local="", milliseconds=self._idle))
        except BaseException:
            made.terminate()
            raise
        finally:
            late.cancel()
        return made

    @staticmethod
    async def _is_pooled(made: Connection) -> bool:
        """Ask without preparing a statement: the process id that a pooler reports is not the server's."""
        return await made.execute(f"SELECT 1 WHERE pg_backend_pid() = {made.get_server_pid()}") != "SELECT 1"

    async def _made(self) -> Connection:
        place, login = self.place, self.place.login
        password = login.password if login.password_file is None else await asyncio.to_thread(login.secret)
        several = len(place.addresses) > 1
        return await asyncpg.connect(
            host=[host for host, _ in place.addresses],
            port=[port for _, port in place.addresses],
            database=place.database,
            user=login.user,
            password=password,
            ssl=self._tls,
            timeout=place.timeout,
            target_session_attrs=SessionAttribute.read_write if several else SessionAttribute.any,
            statement_cache_size=0 if self.pooled else 1_000,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings={"application_name": place.application},
        )

    def transaction(self, connection: Connection) -> AbstractAsyncContextManager[object]:
        """A transaction, read committed, that the server ends if its owner stops in the middle of it."""
        if self.pooled:
            return _pooled_transaction(connection, self._idle)
        return connection.transaction(isolation="read_committed")

    def _failure(self, error: BaseException) -> BackendError:
        if isinstance(error, TimeoutError):
            return BackendUnavailable(f"{self.place.shown} did not let us in within {self.place.timeout:g} s")
        return translated(error, self.place.shown)


@asynccontextmanager
async def _pooled_transaction(connection: Connection, idle: int) -> AsyncIterator[None]:
    await connection.execute(_BEGIN_POOLED + _IDLE.format(local="LOCAL", milliseconds=idle))
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


class SharedConnection:
    """One piece of work at a time, in the order of asking."""

    def __init__(self, connector: Connector, refusal: Callable[[Connection], Awaitable[BackendError | None]]) -> None:
        self.live: Connection | None = None
        self._connector = connector
        self._refusal = refusal
        self._turn = asyncio.Lock()
        self._under_way: asyncio.Task[object] | None = None
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._late = False
        self._over = False

    async def run(self, work: Work[T], timeout: float | None = None) -> T:
        """Do the work, each statement in its own transaction.

        `timeout` is the deadline in seconds, that of the URL unless given. Behind a pooler this is a transaction too,
        since a statement is prepared and executed in two steps, which must meet the same server process.
        """
        return await self._do(self._in_transaction(work) if self._connector.pooled else work, timeout)

    async def transact(self, work: Work[T], timeout: float | None = None) -> T:
        """Do the work in one transaction, read committed: all of it or nothing."""
        return await self._do(self._in_transaction(work), timeout)

    def _in_transaction(self, work: Work[T]) -> Work[T]:
        async def whole(connection: Connection) -> T:
            async with self._connector.transaction(connection):
                return await work(connection)

        return whole

    async def _do(self, work: Work[T], timeout: float | None) -> T:
        await self._turn.acquire()
        try:
            connection = await self._connection()
            task = asyncio.get_running_loop().create_task(self._guarded(connection, work, timeout))
        except BaseException:
            self._turn.release()
            raise
        self._under_way = task
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._under_way = None
        self._turn.release()
        noticed(task)  # its caller may have been cancelled

    async def _connection(self) -> Connection:
        if self._over:
            raise BackendError(f"{self._connector.place.shown}: this session was closed")
        if self.live is None or self.live.is_closed():
            self.live = await self._connector.connect()
        return self.live

    async def _guarded(self, connection: Connection, work: Work[T], timeout: float | None) -> T:
        """Do the work under its deadline; foreign exceptions become Duly's.

        At the deadline the connection is dropped, which ends the work. Cancelling it would make the driver ask the
        server to cancel too, on another connection, which hangs if the server cannot be reached.
        """
        seconds = self._connector.place.timeout if timeout is None else timeout
        self._arm(seconds)
        try:
            return await work(connection)
        except (*FOREIGN, AttributeError) as exc:
            if self._late:
                raise BackendUnavailable(f"{self._connector.place.shown} did not answer within {seconds:g} s") from exc
            if isinstance(exc, AttributeError):  # the driver's answer when the connection is dropped between two steps
                if connection.is_closed():
                    raise unreachable(exc, self._connector.place.shown) from exc
                raise
            if spoils(exc):
                connection.terminate()  # the next one may lead to a server that takes writes
            if isinstance(exc, asyncpg.UndefinedTableError) and (refusal := await self._refusal(connection)):
                raise refusal from exc
            raise translated(exc, self._connector.place.shown) from exc
        finally:
            self._deadline = math.inf

    def _arm(self, seconds: float) -> None:
        """Set the deadline. A running timer checks it when it fires, so a busy connection needs few timers."""
        loop = asyncio.get_running_loop()
        self._late = False
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._disarm()
            self._timer = loop.call_at(self._deadline, self._check)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._deadline <= loop.time():
            self._late = True
            self.drop()
        elif self._deadline < math.inf:
            self._timer = loop.call_at(self._deadline, self._check)

    def drop(self) -> None:
        """Give the connection up; the next piece of work makes another one."""
        if self.live is not None:
            self.live.terminate()

    async def close(self) -> None:
        """Close it for good. Callers that wait for work under way get an error."""
        self._over = True
        self.drop()
        self._disarm()
        if self._under_way is not None:
            await asyncio.wait([self._under_way])


class Connections:
    """The connections of one session, by name. Belongs to the event loop that it was opened on, and to the process."""

    def __init__(
        self, place: Place, namespace: str, clock: StoreClock | None = None, *, lease: float | None = None
    ) -> None:
        self.place = place
        self._lease = lease
        self.clock = clock or StoreClock(SystemClock())
        self.texts = PostgresTexts(namespace)
        self._connector = Connector(place, lease)
        self._shared: dict[str, SharedConnection] = {}
        self._apart: list[Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    @property
    def pooled(self) -> bool:
        """Whether a pooler shares server connections: then session state and LISTEN cannot be used."""
        return self._connector.pooled

    @property
    def is_open(self) -> bool:
        return self._loop is not None and self._process == os.getpid()

    def moment(self, now: datetime | None) -> int | None:
        """The first parameter of a statement that needs the time: see `{now}` in `unit`."""
        if now is not None:
            return to_micros(now)
        return -self.clock.micros() if self.clock.known else None

    @property
    def pause(self) -> float:
        """Seconds until it is worth trying to connect again."""
        return self._connector.backoff.closed_for

    # --- life

    async def open(self) -> None:
        """Be ready for work on this loop; connections are made when they are needed."""
        if self.is_open:
            return
        self._leave_to_parent()
        self._connector = Connector(self.place, self._lease)
        await self._connector.prepare()
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    async def close(self) -> None:
        """Close all connections."""
        self._leave_to_parent()
        connections, apart = self._shared, self._apart
        self._loop, self._shared, self._apart = None, {}, []
        for connection in apart:
            connection.terminate()
        for shared in connections.values():
            await shared.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: its copies of connections are neither used nor closed, since they are its parent's."""
        if self._process != os.getpid():
            _inherited.extend((self._shared, self._apart))
            self._loop, self._shared, self._apart = None, {}, []

    def check(self) -> None:
        """Raise if used before opening, after a fork, or on another loop."""
        if self._loop is None:
            raise BackendError(f"{self.place.shown} is not open in this session: open it, or use `async with`")
        if self._process != os.getpid():
            raise BackendError(
                f"this process was forked after {self.place.shown} was opened, and a connection must not be carried"
                " across a fork: open a new session in the child"
            )
        if self._loop is not asyncio.get_running_loop():
            raise BackendError(
                f"{self.place.shown} was opened on another event loop: open a separate `session()` for this one"
            )

    # --- use

    def __getitem__(self, purpose: str) -> SharedConnection:
        """The connection for a purpose, opened if necessary."""
        self.check()
        shared = self._shared.get(purpose)
        if shared is None:
            shared = self._shared[purpose] = SharedConnection(self._connector, self.refusal)
        return shared

    async def refusal(self, connection: Connection) -> BackendError | None:
        """The error of the store's mark, if tables are missing because the store has moved."""
        try:
            name = await connection.fetchval(self.texts[FIND_MARK])
        except FOREIGN:
            return None
        mark = None if name is None else mark_of(name)
        return None if mark is None else refused(mark, self.place.shown)

    async def connect(self) -> Connection:
        """A separate connection: the caller keeps it and closes it."""
        self.check()
        return await self._connector.connect()

    def hang_up(self, connection: Connection) -> None:
        """Close one that `connect` gave; in a forked child it is left alone, since it is the parent's."""
        if self._process == os.getpid():
            connection.terminate()
        else:
            _inherited.append(connection)

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Connection]:
        """A connection for one user's transaction, so that it and our own work do not wait for each other.

        Exceptions pass through unchanged. A connection that comes back intact and idle is kept for the next one.
        """
        self.check()
        connection = self._idle() or await self._connector.connect(tuned=False)
        try:
            yield connection
        except BaseException:
            connection.terminate()
            raise
        await self._keep(connection)

    def _idle(self) -> Connection | None:
        while self._apart:
            connection = self._apart.pop()
            if not connection.is_closed():
                return connection
        return None

    async def _keep(self, connection: Connection) -> None:
        if connection.is_closed() or connection.is_in_transaction() or len(self._apart) >= _IDLE_APART:
            connection.terminate()
            return
        try:
            if not self._connector.pooled:
                await connection.reset(timeout=self.place.timeout)
        except BaseException as exc:
            connection.terminate()
            if not isinstance(exc, FOREIGN):
                raise
            return  # what it was used for is done
        self._apart.append(connection)
