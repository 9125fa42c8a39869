"""A session: the lanes, the bell and the memory behind one opened backend, and how pieces of work run on them.

Claims, settlements and submissions each have a lane, so that none waits for the others; lookups have one, and listings,
which may take their time, another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from duly.backends.postgres.bell import Bell
from duly.backends.postgres.connection import Connection, Lanes
from duly.backends.postgres.unit import Memory, Unit

T = TypeVar("T")
Task = Callable[[Unit], Awaitable[T]]

CLAIMING = "claiming"
SETTLING = "settling"
PUTTING = "putting"
BEATING = "beating"
STORE = "store"
READING = "reading"
LISTING = "listing"


class Session:
    """The way to the store, from the opening of its lanes to their closing."""

    def __init__(self, lanes: Lanes, bell: Bell) -> None:
        self.lanes = lanes
        self.bell = bell
        self.memory = Memory()

    async def run(self, lane: str, task: Task[T]) -> T:
        """Do a task each statement of which stands for itself."""
        return await self.lanes[lane].run(lambda connection: task(self.unit(connection)))

    async def transact(self, lane: str, task: Task[T]) -> T:
        """Do a task in one transaction; others hear at its commit what it rang for."""

        async def whole(connection: Connection) -> T:
            unit = self.unit(connection)
            answer = await task(unit)
            await unit.ring()
            return answer

        return await self.lanes[lane].transact(whole)

    def unit(self, connection: Connection) -> Unit:
        return Unit(connection, self.lanes.texts, self.memory)
