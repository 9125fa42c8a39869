"""A session: the lanes, the bell and the memory behind one opened backend, and how pieces of work run on them.

Claims and settlements each have a lane, so that neither waits for the other; submissions and lookups share one, since
they are short, and half of a bulk goes beside it; changes by the planner and operators, and listings, which may take
their time, have theirs. More would cost connections, of which a server has few.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from duly.backends.postgres.connection import Connection, Lanes
from duly.backends.postgres.notify import Notifier
from duly.backends.postgres.unit_of_work import Memory, UnitOfWork
from duly.model import to_micros

T = TypeVar("T")
Task = Callable[[UnitOfWork], Awaitable[T]]

CLAIMING = "claiming"
SETTLING = "settling"  # and what keeps claims alive
QUICK = "quick"
BULK = "bulk"
STORE = "store"
LISTING = "listing"


class Session:
    """The way to the store, from the opening of its lanes to their closing."""

    def __init__(self, lanes: Lanes, notifier: Notifier) -> None:
        self.lanes = lanes
        self.notifier = notifier
        self.memory = Memory()
        self.stirred: Callable[[], None] = lambda: None

    async def run(self, lane: str, task: Task[T], timeout: float | None = None) -> T:
        """Do a task each statement of which stands for itself."""
        units: list[UnitOfWork] = []

        async def whole(connection: Connection) -> T:
            units.append(self.unit(connection))
            return await task(units[0])

        answer = await self.lanes[lane].run(whole, timeout)
        self._tell(units)
        return answer

    async def transact(self, lane: str, task: Task[T], timeout: float | None = None) -> T:
        """Do a task in one transaction; others hear at its commit what it rang for."""
        units: list[UnitOfWork] = []

        async def whole(connection: Connection) -> T:
            units.append(self.unit(connection))
            answer = await task(units[0])
            await units[0].ring()
            return answer

        answer = await self.lanes[lane].transact(whole, timeout)
        self._tell(units)
        return answer

    def _tell(self, units: Sequence[UnitOfWork]) -> None:
        """What was done may concern those who do not hear the store's bell."""
        if any(unit.stirs for unit in units):
            self.stirred()

    def moment(self, now: datetime | None) -> int | None:
        """What a statement is told about the time: see `texts.NOW`."""
        return self.lanes.moment(now)

    def believed(self, now: datetime | None) -> int | None:
        """The time for what is only shown; None while the server's clock has not been read."""
        if now is not None:
            return to_micros(now)
        return self.lanes.clock.micros() if self.lanes.clock.known else None

    def unit(self, connection: Connection) -> UnitOfWork:
        return UnitOfWork(connection, self.lanes, self.memory)
