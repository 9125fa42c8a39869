"""A unit of work: what a function that runs on a connection is given. Statements, the clock, the locks of groups.

A statement is a constant with `{ns}` where the schema goes; its text is made once. Lists travel as arrays, so that one
prepared statement serves every length. The connection may be one of ours or, in `within`, the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from duly.backends.postgres.connection import Connection, Lanes
from duly.model import to_micros

Row = Any  # a record of the driver: a tuple with names

_MOST_REMEMBERED = 200_000

_NOW = "SELECT {now}"
_SERVER_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_LOCK = "SELECT {ns}.lock_groups($1::text[])"
_MANY = "SELECT pg_advisory_xact_lock(hashtextextended('duly many ' || $1, 0))"
_RING = "SELECT pg_notify({bell}, $1)"


class Lent(Struct, frozen=True, gc=False):
    """What a session knows about a run that it lent."""

    run_id: str
    seq: int


class Memory:
    """What a session remembers between units: the runs it lent, by fence."""

    def __init__(self) -> None:
        self.lent: dict[int, Lent] = {}

    def remember(self, lent: dict[int, Lent]) -> None:
        if len(self.lent) > _MOST_REMEMBERED:
            self.lent.clear()
        self.lent.update(lent)


class UnitOfWork:
    """Wraps one connection for the length of a piece of work.

    `rings` is what others should hear of afterwards. `stirs` tells that runs wait again or are to be cancelled, or that
    others may be able to start what this node cannot, in the course of something else: whoever announces work by other
    means than the store's bell does not know of that otherwise.
    """

    def __init__(self, connection: Connection, lanes: Lanes, memory: Memory) -> None:
        self._connection = connection
        self._lanes = lanes
        self._texts = lanes.texts
        self.memory = memory
        self.rings = 0
        self.stirs = False

    @property
    def namespace(self) -> str:
        return self._texts.namespace

    # --- statements

    async def all(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a statement."""
        return await self._connection.fetch(self._texts[sql], *parameters)

    async def one(self, sql: str, *parameters: Any) -> Row | None:
        """The first row of a statement, if there is one."""
        return await self._connection.fetchrow(self._texts[sql], *parameters)

    async def run(self, sql: str, *parameters: Any) -> None:
        """Execute a statement that answers nothing."""
        await self._connection.fetch(self._texts[sql], *parameters)

    # --- the clock

    def moment(self, now: datetime | None) -> int | None:
        """What a statement is told about the time: see `texts.NOW`."""
        return self._lanes.moment(now)

    async def at(self, now: datetime | None) -> int:
        """The instant this happens at, in microseconds: now, whenever the transaction began; or what a test gives."""
        if now is not None:
            return to_micros(now)
        row = await self._connection.fetchrow(self._texts[_NOW], self.moment(None))
        assert row is not None
        return int(row[0])

    async def server_clock(self) -> int:
        """What the server's clock shows, believed or not."""
        row = await self._connection.fetchrow(_SERVER_CLOCK)
        assert row is not None
        return int(row[0])

    # --- groups

    async def lock_groups(self, groups: Iterable[str | None]) -> None:
        """Be the only one to decide about these groups until the transaction ends; nor does a running member leave.

        Once per transaction, before rows.
        """
        if names := [group for group in groups if group is not None]:
            await self._connection.fetch(self._texts[_LOCK], names)

    async def alone_with_many(self, number: int) -> None:
        """If these are many runs, be the only one who changes many until the transaction ends; before anything else.

        Two that lock the same rows in different orders would wait for each other.
        """
        if number > 1:
            await self._connection.fetch(_MANY, self.namespace)

    # --- ringing

    async def ring(self) -> None:
        """Tell others at commit what has happened."""
        if self.rings:
            await self._connection.fetch(self._texts[_RING], str(self.rings))
