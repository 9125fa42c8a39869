"""Servers and ports that pages name, and those that stand for them in a test."""

import asyncio
import re
import socket
from contextlib import ExitStack
from typing import ClassVar

import asyncpg
import redis

from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import etcd_server, redis_server


class Addresses:
    """Servers and ports that a page names, and those that stand for them here."""

    PORTS = ("8080", "8443", "9090", "9091", "9092", "8000", "8001", "8002", "5000")
    REDIS: ClassVar = {
        "localhost:6379": "{}",
        "redis://jobs.internal": "redis://{}",
        "redis://ring.internal:6379": "redis://{}",
    }
    POSTGRES: ClassVar = {
        "postgresql://jobs.internal/duly": "postgresql://{}/duly",
        "postgresql://duly@db.internal/jobs": "postgresql://duly@{}/jobs",
    }
    ETCD: ClassVar = {"etcd://e1.internal,e2.internal,e3.internal": "etcd://{}"}

    def __init__(self, text: str, stack: ExitStack) -> None:
        self._real: dict[str, str] = {}
        self.postgres = self._redis = ""
        if named := {shown: real for shown, real in self.REDIS.items() if shown in text}:
            self._redis = f"127.0.0.1:{stack.enter_context(redis_server()).port}"
            self._name(named, self._redis)
        if named := {shown: real for shown, real in self.POSTGRES.items() if shown in text}:
            server = stack.enter_context(postgres_server())
            for shown in named:
                database = shown.rpartition("/")[2]
                ask(server.url, f"CREATE DATABASE {database}")
                self.postgres = f"{server.url.rpartition('/')[0]}/{database}"
            self._name(named, f"127.0.0.1:{server.port}")
        self.etcd = ""
        if (named := {shown: real for shown, real in self.ETCD.items() if shown in text}) or "$ etcdctl" in text:
            self.etcd = stack.enter_context(etcd_server()).host
            self._name(named, self.etcd)
        self.ports = {port: str(reserved(stack)) for port in self.PORTS}

    @classmethod
    def servers(cls, text: str) -> list[str]:
        """The kinds of servers that a page needs."""
        kinds = {"redis": cls.REDIS, "postgres": cls.POSTGRES}
        started = {"redis": "redis_server(", "postgres": "postgres_server("}
        return [kind for kind, names in kinds.items() if any(name in text for name in (*names, started[kind]))]

    def _name(self, shown: dict[str, str], place: str) -> None:
        self._real |= {name: real.format(place) for name, real in shown.items()}

    def real(self, text: str) -> str:
        for shown, real in self._real.items():
            text = text.replace(shown, real)
        return re.sub(r"(?<=[:\s])(\d{4})\b", lambda found: self.ports.get(found[1], found[1]), text)

    def shown(self, text: str) -> str:
        for shown, real in self._real.items():
            text = text.replace(real, shown)
        known = {real: shown for shown, real in self.ports.items()}
        return re.sub(r"(?<=:)(\d{4,5})\b", lambda found: known.get(found[1], found[1]), text)

    def tell_redis(self, text: str) -> None:
        """Give commands to the Redis server of the page."""
        with redis.Redis.from_url(f"redis://{self._redis}") as client:
            for line in text.splitlines():
                client.execute_command(*line.split())


def reserved(stack: ExitStack) -> int:
    """A port that nobody else gets until the stack ends; a server may listen on it, as all set `SO_REUSEADDR`."""
    holder = stack.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port


def ask(url: str, sql: str) -> None:
    """Execute statements on a PostgreSQL server."""

    async def conversation() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    asyncio.run(conversation())
