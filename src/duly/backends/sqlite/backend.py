"""The SQLite backend: one file on one machine, any number of processes."""

from __future__ import annotations

from typing import Self

from duly.backends.options import check_timeout
from duly.backends.sqlite.coordinator import SqliteCoordinator
from duly.backends.sqlite.doctor import examine
from duly.backends.sqlite.file_clock import boot_of
from duly.backends.sqlite.queue import SqliteQueue
from duly.backends.sqlite.session import Session
from duly.backends.sqlite.store import SqliteStore
from duly.backends.sqlite.url import checked_namespace, parse
from duly.ports import Capabilities, Clock, Coordinator, Finding, Opening, Queue, Store, StoreClock
from duly.rules.redaction import redacted

CAPABILITIES = Capabilities(
    durable=True,
    durable_start=True,
    shared=True,
    transactions=True,
    push=True,
    threads=True,
)


class SqliteBackend:
    """One session on a file: connections, threads and a bell of its own."""

    capabilities = CAPABILITIES
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(self, url: str, opening: Opening, clock: StoreClock | None = None) -> None:
        self.url = url
        self.clock = clock or _clock_of(opening.clock)
        self._opening = opening
        place = parse(url)
        check_timeout("busy_timeout", place.busy_timeout, opening.lease, redacted(url))
        self._session = Session(place, checked_namespace(opening.namespace), self.clock, migrates=opening.migrates)
        self.store = SqliteStore(self._session, opening.clock, place.path.parent)
        self.queue = SqliteQueue(self._session)
        self.coordinator = SqliteCoordinator(self._session)

    async def open(self) -> None:
        await self._session.open()
        if not self.clock.direct and self._opening.migrates:
            sent = self.clock.monotonic()
            self.clock.read(await self.store.time(), sent)

    async def close(self) -> None:
        await self._session.close()

    def session(self, timeout: float | None = None) -> Self:  # a file is no network
        return type(self)(self.url, self._opening, self.clock)

    async def refresh(self) -> Capabilities:
        return self.capabilities

    async def examine(self) -> list[Finding]:
        session = self._session
        push = session.gear.notifier.reaches_others
        return await session.browse(lambda unit: examine(unit, session.place, session.namespace, push=push))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _clock_of(local: Clock) -> StoreClock:
    """The clock of a file; where the machine's clocks cannot be compared between processes, each goes by its own."""
    return StoreClock(local, direct=boot_of(local) is None)


def open_url(url: str, opening: Opening) -> SqliteBackend:
    """`sqlite:///relative.db` or `sqlite:////absolute/path.db`, with `?synchronous=` and `?busy_timeout=`."""
    return SqliteBackend(url, opening)
