"""The slowest call that a server has executed for a store, where the server records it.

Redis: SLOWLOG, which holds commands above a threshold (10 ms by default). PostgreSQL: pg_stat_statements, where it is
installed. Nothing is reset or reconfigured on the server: two readings are compared.
"""

from __future__ import annotations

from typing import Any, Protocol

from duly.errors import BackendError
from duly.ports import Backend

_ENTRIES = 1000
_STATEMENTS = "SELECT queryid::text, max_exec_time FROM pg_stat_statements WHERE max_exec_time > 1"


class SlowCalls(Protocol):
    """What a server records about slow calls."""

    async def read(self) -> dict[str, float] | None:
        """Milliseconds by a key of the server; None if this server does not tell."""
        ...


def slow_calls(backend: Backend) -> SlowCalls | None:
    """The record of the server of this backend; None if it has none."""
    client, connections = getattr(backend, "client", None), getattr(backend, "connections", None)
    if client is not None:
        return _RedisLog(client)
    return None if connections is None else _Statements(connections)


def slowest(before: dict[str, float], after: dict[str, float]) -> float:
    """The slowest call between two readings, in milliseconds; 0.0 if no slow call was recorded."""
    return max((value for key, value in after.items() if value > before.get(key, 0.0)), default=0.0)


class _RedisLog:
    """The commands of this namespace in SLOWLOG."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def read(self) -> dict[str, float] | None:
        try:
            entries = await self._client.command("SLOWLOG", "GET", _ENTRIES)
        except BackendError:  # managed servers forbid it
            return None
        return {
            str(number): micros / 1e3
            for number, _, micros, words, *_ in entries
            if any(word.startswith(self._client.prefix) for word in words)
        }


class _Statements:
    """The statements of the database in pg_stat_statements."""

    def __init__(self, connections: Any) -> None:
        self._connections = connections

    async def read(self) -> dict[str, float] | None:
        import asyncpg  # noqa: PLC0415  # an extra

        try:
            async with self._connections.apart() as connection:
                return {row[0]: row[1] for row in await connection.fetch(_STATEMENTS)}
        except asyncpg.PostgresError:  # the extension is not installed, or not for this role
            return None
