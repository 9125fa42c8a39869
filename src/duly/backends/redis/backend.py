"""The Redis backend: one server for any number of processes on any number of machines."""

from __future__ import annotations

from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.options import USUAL_TIMEOUT, check_timeout
from duly.backends.redis.client import RedisClient
from duly.backends.redis.coordinator import RedisCoordinator
from duly.backends.redis.doctor import UNKNOWN, capabilities_of, findings, read_server_info
from duly.backends.redis.queue import RedisQueue
from duly.backends.redis.settings import ConnectionSettings, parse, settings_of_client
from duly.backends.redis.store import RedisStore
from duly.backends.url_parts import checked_namespace
from duly.ports import Capabilities, Coordinator, Finding, Opening, Queue, Store, StoreClock, SystemClock


class RedisBackend:
    """One session: separate connections, and separate knowledge of which store this is."""

    capabilities: Capabilities = UNKNOWN
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(
        self, settings: ConnectionSettings, namespace: str, clock: StoreClock | None = None, *, migrates: bool = True
    ) -> None:
        self.url = settings.safe_url
        self._migrates = migrates
        self.clock = clock = clock or StoreClock(SystemClock())
        self._settings = settings
        self._namespace = checked_namespace(namespace, "Redis")
        self.client = RedisClient(settings, namespace, clock=clock, ignores_mark=not migrates)
        self.store = RedisStore(self.client)
        self.queue = RedisQueue(self.client)
        self.coordinator = RedisCoordinator(self.client)

    @classmethod
    def from_client(cls, client: object, *, timeout: float = USUAL_TIMEOUT, replicas: int = 0) -> RedisFactory:
        """What `Scheduler(backend=…)` takes, for the server of a redis-py client.

        Takes over address, credentials, database and TLS, and opens separate connections: the client may be closed.
        `timeout` is the deadline of every call, in seconds, and `replicas` how many replicas must confirm a change.
        Raises `ConfigurationError` for a client whose settings cannot be taken over, such as one of a cluster.
        """
        return RedisFactory(settings_of_client(client, timeout, replicas))

    async def open(self) -> None:
        await self.client.open()
        sent = self.clock.monotonic()
        self.clock.read(await self.store.time(), sent)
        await self.refresh()

    async def close(self) -> None:
        await self.client.close()

    def session(self, timeout: float | None = None) -> Self:
        settings = self._settings
        if timeout is not None:
            settings = replace(settings, timeout=min(timeout, settings.timeout))
        return type(self)(settings, self._namespace, self.clock, migrates=self._migrates)

    async def refresh(self) -> Capabilities:
        self.capabilities = capabilities_of(await read_server_info(self.client), self._settings)
        return self.capabilities

    async def examine(self) -> list[Finding]:
        info = await read_server_info(self.client)
        flat = [word.decode() for word in await self.client.on_key("HGETALL", "incarnation")]
        return findings(info, self._settings, dict(zip(flat[::2], flat[1::2], strict=True)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self._namespace!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class RedisFactory(Struct, frozen=True):
    """Makes backends for one server."""

    settings: ConnectionSettings

    def __call__(self, opening: Opening) -> RedisBackend:
        """A backend, not yet opened. The server's clock decides."""
        settings = self.settings
        check_timeout("timeout", settings.timeout, opening.lease, settings.safe_url)
        return RedisBackend(settings, opening.namespace, StoreClock(opening.clock), migrates=opening.migrates)


def open_url(url: str, opening: Opening) -> RedisBackend:
    """`redis://`, `redis+sentinel://`, `redis+cluster://` and the same with `rediss`; see docs/redis-connection.md."""
    return RedisFactory(parse(url))(opening)
