"""A session: the connections, the notifier and the memory behind one opened backend, and how work runs on them.

Claims and settlements each have a connection, so that neither waits for the other. Submissions and lookups share one,
since they are short; half of a bulk goes through another. Changes by the planner and operators, and listings, which may
take long, have their own. A server allows few connections, so there are no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from duly.backends.postgres.connection import Connection, Connections
from duly.backends.postgres.dialect import DIALECT
from duly.backends.postgres.notify import Notifier
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.sql.unit import QUICK, Memory
from duly.ports.waiting import noticed

T = TypeVar("T")
Task = Callable[[PostgresUnit], Coroutine[Any, Any, T]]

BULK = "bulk"
LISTING = "listing"

_VACUUM_AFTER = 20_000
_VACUUMING = "vacuum"
_VACUUM = "VACUUM (SKIP_LOCKED, TRUNCATE false, INDEX_CLEANUP on, PARALLEL 0) {ns}.waiting, {ns}.claims"


class Session:
    """Access to the store, from opening its connections to closing them.

    `when_others_are_affected` is called after each commit that lets runs wait again, or cancels some, as a side effect:
    a notifier other than this one does not know of that otherwise.
    """

    def __init__(
        self, connections: Connections, notifier: Notifier, when_others_are_affected: Callable[[], None]
    ) -> None:
        self.connections = connections
        self.notifier = notifier
        self.memory = Memory()
        self._when_others_are_affected = when_others_are_affected

    async def read(self, task: Task[T], *, listing: bool = False, timeout: float | None = None) -> T:
        return await self.run(LISTING if listing else QUICK, task, timeout)

    async def write_each(self, purpose: str, task: Task[T]) -> T:
        return await self.run(purpose, task)

    async def run(self, purpose: str, task: Task[T], timeout: float | None = None) -> T:
        """Do a task whose statements are separate transactions."""
        units: list[PostgresUnit] = []

        async def whole(connection: Connection) -> T:
            units.append(self.unit(connection))
            return await task(units[0])

        answer = await self.connections[purpose].run(whole, timeout)
        self._report(units)
        return answer

    async def write(self, purpose: str, task: Task[T], timeout: float | None = None) -> T:
        units: list[PostgresUnit] = []

        async def whole(connection: Connection) -> T:
            units.append(self.unit(connection))
            answer = await task(units[0])
            await units[0].notify()
            return answer

        answer = await self.connections[purpose].transact(whole, timeout)
        self._report(units)
        return answer

    def _report(self, units: Sequence[PostgresUnit]) -> None:
        if any(unit.affects_others for unit in units):
            self._when_others_are_affected()

    def unit(self, connection: Connection) -> PostgresUnit:
        return PostgresUnit(connection, self.connections, self.memory, DIALECT)


class Vacuum:
    """Removes the dead rows that claims leave behind before they have to be walked over.

    Every claimed and every settled run leaves a dead row in a small table, at the very place where the next claim
    begins to look. The server vacuums once a minute at best; a busy node cannot wait so long, and asks for it after
    every 20,000 runs. Belongs to one event loop; one at a time.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lent = 0
        self._running: asyncio.Future[None] | None = None

    def after(self, lent: int) -> None:
        """Count this many lent runs, and vacuum after enough of them. A pooler does not allow it."""
        self._lent += lent
        if self._lent >= _VACUUM_AFTER and self._running is None and not self._connections.pooled:
            self._lent = 0
            self._running = asyncio.ensure_future(self.run())
            self._running.add_done_callback(self._done)

    async def run(self) -> None:
        """Vacuum now, concurrently with everything else."""
        sql = self._connections.texts[_VACUUM]
        await self._connections[_VACUUMING].run(lambda connection: connection.execute(sql))

    def _done(self, run: asyncio.Future[None]) -> None:
        self._running = None
        noticed(run)  # ignore errors: the server vacuums too, and a lasting error also fails the next claim
