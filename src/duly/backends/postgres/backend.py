"""The PostgreSQL backend: one database for any number of processes on any number of machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from msgspec.structs import replace

from duly.backends.options import check_timeout
from duly.backends.postgres.connection import Lanes
from duly.backends.postgres.coordinator import PostgresCoordinator
from duly.backends.postgres.doctor import findings
from duly.backends.postgres.migrating import check
from duly.backends.postgres.notify import Notifier
from duly.backends.postgres.queue import PostgresQueue
from duly.backends.postgres.server_info import ServerInfo, capabilities_of, gather
from duly.backends.postgres.session import Session
from duly.backends.postgres.store import PostgresStore
from duly.backends.postgres.url import Place, checked_namespace, parse
from duly.ports import Capabilities, Coordinator, Finding, Opening, Queue, Store, StoreClock

# Until the server was asked, nothing is promised.
UNKNOWN = Capabilities(
    durable=False,
    durable_start=False,
    shared=True,
    transactions=True,
    push=True,
    threads=True,
)


class PostgresBackend:
    """One session on a database: lanes, a bell and a memory of its own."""

    capabilities: Capabilities = UNKNOWN
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(self, place: Place, opening: Opening, clock: StoreClock | None = None) -> None:
        self.url = place.shown
        self.clock = clock or StoreClock(opening.clock)
        self._place = place
        self._opening = opening
        self.lanes = Lanes(place, checked_namespace(opening.namespace), self.clock, lease=opening.lease)
        self.notifier = Notifier(self.lanes)
        session = self._session = Session(self.lanes, self.notifier)
        self.store = PostgresStore(session)
        self.queue = PostgresQueue(session)
        self.coordinator = PostgresCoordinator(self.lanes, self.notifier)

    async def open(self) -> None:
        if self.lanes.is_open:
            return
        self.notifier.close()  # in a forked child it may have a connection left, which is the parent's
        await self.lanes.open()
        self.notifier.open()
        try:
            if self._opening.migrates:
                await check(self.lanes)
            sent = self.clock.monotonic()
            self.clock.read(await self.store.time(), sent)
            await self.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self.notifier.close()
        await self.lanes.close()

    def session(self, timeout: float | None = None) -> Self:
        place = self._place if timeout is None else replace(self._place, timeout=min(timeout, self._place.timeout))
        return type(self)(place, self._opening, self.clock)

    def when_stirred(self, call: Callable[[], None]) -> None:
        """Have this called after each commit that lets runs wait again, or cancels some, beside what was asked for."""
        self._session.stirred = call

    async def refresh(self) -> Capabilities:
        self.capabilities = capabilities_of(await self._facts(), self._place)
        return self.capabilities

    async def examine(self) -> list[Finding]:
        return findings(await self._facts(), self._place, self._opening.namespace)

    async def _facts(self) -> ServerInfo:
        return await gather(self.lanes, self._opening.clock)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self._opening.namespace!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def open_url(url: str, opening: Opening) -> PostgresBackend:
    """`postgresql://` and `postgres://`; see docs/postgres.md. The server's clock decides."""
    place = parse(url)
    check_timeout("timeout", place.timeout, opening.lease, place.shown)
    return PostgresBackend(place, opening)
