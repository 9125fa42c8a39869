"""The servers of a run: one Redis or Valkey for all, emptied between measurements, and one PostgreSQL if needed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.side_by_side.environments import CannotInstall
from bench.side_by_side.postgres import CannotStart, Postgres, postgres_server
from duly.testing.servers import RedisServer, redis_server

_PATIENCE = 30.0


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

    def clear_redis(self) -> None:
        """Whoever comes next finds an empty server. It was started by this run and holds nothing of anybody else's."""
        self._ask("FLUSHALL SYNC")

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


@contextmanager
def servers(*, postgres: bool) -> Iterator[Servers]:
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        try:
            started = stack.enter_context(postgres_server()) if postgres else None
        except (CannotStart, CannotInstall) as error:  # who needs it fails, the others do not
            yield Servers(redis, None, f"{error}")
        else:
            yield Servers(redis, started)
