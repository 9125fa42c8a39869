"""The servers of a run: one Redis or Valkey for all and one PostgreSQL if needed, emptied between measurements."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import asyncpg

from bench.side_by_side.environments import CannotInstall
from bench.side_by_side.postgres import CannotStart, Postgres, postgres_server
from duly.testing.servers import RedisServer, redis_server

_PATIENCE = 30.0
_REDIS_SETTINGS = ("appendonly", "appendfsync", "save")
_POSTGRES_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'"


class Servers:
    """What is running, by the name under which the catalogue knows it."""

    def __init__(self, redis: RedisServer, postgres: Postgres | None, trouble: str = "") -> None:
        self._redis = redis
        self._postgres = postgres
        self._trouble = trouble

    def url(self, server: str) -> str:
        if server == "redis":
            return self._redis.url
        if self._postgres is None:
            raise CannotStart(self._trouble)
        return self._postgres.url

    def clear(self) -> None:
        """Leave empty servers to the next measurement. They were started by this run and hold nothing else."""
        self._ask("FLUSHALL SYNC")
        if self._postgres is not None:
            asyncio.run(_drop_schemas(self._postgres.url))

    def settings(self) -> dict[str, str]:
        """How each server keeps what it has acknowledged."""
        found = {"redis": ", ".join(f"{name} {self._redis_setting(name)}" for name in _REDIS_SETTINGS)}
        if self._postgres is not None:
            found["postgresql"] = asyncio.run(_shown(self._postgres.url))
        return found

    def _redis_setting(self, name: str) -> str:
        value = self._ask(f"CONFIG GET {name}").splitlines()[4]
        return value or '""'

    def versions(self) -> dict[str, str]:
        told = dict(line.split(":", 1) for line in self._ask("INFO server").splitlines() if ":" in line)
        name = "valkey" if "valkey_version" in told else "redis"
        redis = {name: told[f"{name}_version"]}
        return redis if self._postgres is None else redis | {"postgresql": self._postgres.version}

    def _ask(self, command: str) -> str:
        """One command, as anybody may type it into a connection."""
        with socket.create_connection(("127.0.0.1", self._redis.port), timeout=_PATIENCE) as connection:
            connection.sendall(f"{command}\r\nQUIT\r\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


async def _drop_schemas(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for row in await connection.fetch(_SCHEMAS):
            await connection.execute(f'DROP SCHEMA "{row[0]}" CASCADE')
        await connection.execute("CREATE SCHEMA public")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _shown(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return ", ".join([f"{name} {await connection.fetchval(f'SHOW {name}')}" for name in _POSTGRES_SETTINGS])
    finally:
        await connection.close()


@contextmanager
def servers(*, postgres: bool, durable: bool = False) -> Iterator[Servers]:
    """Servers of one's own; `durable`: Redis with its log synced every second, PostgreSQL with synchronous commits."""
    with ExitStack() as stack:
        log = {"appendfsync": "everysec"} if durable else {}
        redis = stack.enter_context(redis_server(appendonly=durable, config=log))
        try:
            started = stack.enter_context(postgres_server(durable=durable)) if postgres else None
        except (CannotStart, CannotInstall) as error:  # who needs it fails, the others do not
            yield Servers(redis, None, f"{error}")
        else:
            yield Servers(redis, started)
