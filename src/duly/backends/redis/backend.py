"""The Redis backend: one server for any number of processes on any number of machines."""

from __future__ import annotations

from typing import Self

from duly.backends.redis.coordinator import RedisCoordinator
from duly.backends.redis.examine import findings
from duly.backends.redis.facts import capabilities_of, gather
from duly.backends.redis.queue import RedisQueue
from duly.backends.redis.store import RedisStore
from duly.backends.redis.url import Place, checked_namespace, parse
from duly.backends.redis.wire import Wire
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
        self.wire = Wire(place, namespace, clock=clock)
        self.store = RedisStore(self.wire)
        self.queue = RedisQueue(self.wire)
        self.coordinator = RedisCoordinator(self.wire)

    async def open(self) -> None:
        await self.wire.open()
        sent = self.clock.monotonic()
        self.clock.read(await self.store.time(), sent)
        await self.refresh()

    async def close(self) -> None:
        await self.wire.close()

    def session(self) -> Self:
        return type(self)(self._place, self._namespace, self.clock)

    async def refresh(self) -> Capabilities:
        self.capabilities = capabilities_of(await gather(self.wire), self._place)
        return self.capabilities

    async def examine(self) -> list[Finding]:
        facts = await gather(self.wire)
        kept = await self.wire.command("HGETALL", self.wire.prefix + b"incarnation")
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
    return RedisBackend(parse(url), checked_namespace(opening.namespace), StoreClock(opening.clock))
