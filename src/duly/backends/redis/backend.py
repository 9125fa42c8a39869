"""The Redis backend: one server for any number of processes on any number of machines."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from duly.backends.options import check_timeout
from duly.backends.redis.client import RedisClient
from duly.backends.redis.coordinator import RedisCoordinator
from duly.backends.redis.doctor import capabilities_of, findings, gather
from duly.backends.redis.queue import RedisQueue
from duly.backends.redis.settings import Place, checked_namespace, parse
from duly.backends.redis.store import RedisStore
from duly.ports import Capabilities, Coordinator, Finding, Opening, Queue, Store, StoreClock, SystemClock

# Until the server was asked, nothing is promised.
UNKNOWN = Capabilities(
    durable=False,
    durable_start=False,
    shared=True,
    transactions=False,
    push=True,
    threads=True,
    pipelined=True,
)


class RedisBackend:
    """One session on a server: lanes, a bell and a memory of the store's incarnation of its own."""

    capabilities: Capabilities = UNKNOWN
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(self, place: Place, namespace: str, clock: StoreClock | None = None) -> None:
        self.url = place.shown
        self.clock = clock = clock or StoreClock(SystemClock())
        self._place = place
        self._namespace = namespace
        self.client = RedisClient(place, namespace, clock=clock)
        self.store = RedisStore(self.client)
        self.queue = RedisQueue(self.client)
        self.coordinator = RedisCoordinator(self.client)

    async def open(self) -> None:
        await self.client.open()
        sent = self.clock.monotonic()
        self.clock.read(await self.store.time(), sent)
        await self.refresh()

    async def close(self) -> None:
        await self.client.close()

    def session(self, timeout: float | None = None) -> Self:
        place = self._place if timeout is None else replace(self._place, timeout=min(timeout, self._place.timeout))
        return type(self)(place, self._namespace, self.clock)

    async def refresh(self) -> Capabilities:
        self.capabilities = capabilities_of(await gather(self.client), self._place)
        return self.capabilities

    async def examine(self) -> list[Finding]:
        facts = await gather(self.client)
        kept = await self.client.command("HGETALL", self.client.prefix + b"incarnation")
        words = [word.decode() for word in kept]
        return findings(facts, self._place, dict(zip(words[::2], words[1::2], strict=True)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self._namespace!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def open_url(url: str, opening: Opening) -> RedisBackend:
    """`redis://`, `rediss://` and `redis+sentinel://`; see docs/redis-connection.md. The server's clock decides."""
    place = parse(url)
    check_timeout("timeout", place.timeout, opening.lease, place.shown)
    return RedisBackend(place, checked_namespace(opening.namespace), StoreClock(opening.clock))
