"""The PostgreSQL backend: one database for any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import answers, duration, instant
from duly.backends.cursors import coming_after
from duly.backends.handler_sets import HandlerSetCache
from duly.backends.options import check_timeout
from duly.backends.postgres import adding, claiming, migrations, settling
from duly.backends.postgres.connection import Connection, Connections
from duly.backends.postgres.doctor import ServerInfo, capabilities_of, findings, gather
from duly.backends.postgres.notify import Notifier
from duly.backends.postgres.plain_claims import PlainClaims
from duly.backends.postgres.session import BULK, Session, Vacuum
from duly.backends.postgres.transaction import Block, Joined
from duly.backends.postgres.transfer import PostgresTransfer
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.postgres.url import Place, checked_namespace, parse, place_of_pool
from duly.backends.sql.coordinator import SqlCoordinator
from duly.backends.sql.queue import SqlQueue
from duly.backends.sql.settling import settle_each
from duly.backends.sql.store import SqlStore
from duly.backends.sql.unit import CLAIMING, QUICK, SETTLING
from duly.model import Beat, Claim, Claimed, EndedProcess, Put, Renewal, Run, Settlement, from_micros, to_micros
from duly.ports import Capabilities, Coordinator, Finding, Opening, Queue, Store, StoreClock, Transaction

if TYPE_CHECKING:
    import asyncpg

# Before the server has been asked, nothing is promised.
UNKNOWN = Capabilities(
    durable=False,
    durable_start=False,
    shared=True,
    transactions=True,
    push=True,
    threads=True,
    reads_ahead=True,
)


_MOST_ROUNDS = 100
_BULK = 500


class PostgresStore(PostgresTransfer, SqlStore):
    """The store port on a database."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._server = session
        self.url = session.connections.place.shown

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        return Block(self._server, claim, timeout)

    def within(self, connection: Any) -> Transaction:
        return Joined(self._server, connection)

    async def migrate(self) -> list[str]:
        return await migrations.migrate(self._server.connections)

    async def time(self) -> datetime:
        return from_micros(await self._server.read(lambda unit: unit.server_clock()))


class PostgresQueue(SqlQueue[PostgresUnit]):
    """The queue port: each call is one statement, or one transaction of several."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._server = session
        self._vacuum = Vacuum(session.connections)
        self._handlers = HandlerSetCache(claiming.named)
        self._plain = PlainClaims()
        self._fenced: Connection | None = None

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        if not runs:
            return []
        if not adding.is_plain(runs):
            return await self._server.write(QUICK, lambda unit: adding.add(unit, runs, now))
        if len(runs) < _BULK:
            return await self._put_plain(QUICK, runs, now)
        middle = len(runs) // 2  # two processes of the server share the work
        halves = (self._put_plain(QUICK, runs[:middle], now), self._put_plain(BULK, runs[middle:], now))
        one, other = await asyncio.gather(*halves)
        return one + other

    async def _put_plain(self, purpose: str, runs: Sequence[Run], now: datetime | None) -> list[Put]:
        return await self._server.run(purpose, lambda unit: adding.add_plain(unit, runs, now))

    # --- claiming

    async def claim(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        limit: int,
        lease: float,
        request: int,
        *,
        now: datetime | None = None,
    ) -> Claimed:
        asking = claiming.Asking(
            node,
            None if queues is None else list(queues),
            handlers,
            self._handlers.of(handlers),
            request,
            self._server.connections.moment(now),
            duration(lease),
        )
        await self._raise_fences()
        plain = await self._lend_plain(asking, limit)
        lent = plain or await self._lend(asking, limit, claiming.Step(), deciding=False)
        if lent.fresh is None:
            await self._server.write(CLAIMING, partial(_know_handlers, asking))
            lent = await self._lend(asking, limit, claiming.Step(), deciding=False)
        if not lent.fresh:
            before = await self._server.run(CLAIMING, lambda unit: claiming.lent_before(unit, asking))
            if before:
                return Claimed(before, instant(lent.next_due))
            lent = await self._lend(asking, limit, claiming.Step(again=True), deciding=False)
        claims, step = lent.claims, claiming.Step(again=True)
        for _ in range(_MOST_ROUNDS):
            if len(claims) >= limit or not _more(lent, step):
                break
            step = claiming.Step.after(claims, put_back=step.put_back or lent.back)
            lent = await self._go_on(asking, limit - len(claims), lent, step)
            claims += lent.claims
        self._vacuum.after(len(claims))
        return Claimed(claims, instant(lent.next_due))

    async def _raise_fences(self) -> None:
        """Once per connection: it may lead to a copy of the store that lost its latest fences."""
        shared = self._server.connections[CLAIMING]
        if self._fenced is None or self._fenced is not shared.live or self._fenced.is_closed():
            namespace = self._server.connections.texts.namespace
            await self._server.write(CLAIMING, lambda unit: claiming.raise_fences(unit, namespace))
            self._fenced = shared.live

    async def _lend_plain(self, asking: claiming.Asking, limit: int) -> claiming.Lending | None:
        if not self._plain.promising:
            return None
        return await self._server.run(CLAIMING, lambda unit: self._plain.lend(unit, asking, limit))

    async def _lend(
        self, asking: claiming.Asking, limit: int, step: claiming.Step, *, deciding: bool
    ) -> claiming.Lending:
        """Lend; where groups are in use, decide about them first, otherwise only if the statement asks for it."""
        if deciding:
            return await self._server.write(CLAIMING, lambda unit: claiming.decide_and_lend(unit, asking, limit, step))
        return await self._server.run(CLAIMING, lambda unit: claiming.lend(unit, asking, limit, step))

    async def _go_on(
        self, asking: claiming.Asking, limit: int, lent: claiming.Lending, step: claiming.Step
    ) -> claiming.Lending:
        """Resolve what prevented lending, and lend again."""
        if lent.held:
            await self._server.run(CLAIMING, lambda unit: claiming.sift(unit, asking, limit, step))
        if lent.back:
            await self._server.write(CLAIMING, lambda unit: claiming.unhold_handlers(unit, asking.handlers, limit))
        return await self._lend(asking, limit, step, deciding=lent.in_the_way or lent.undecided is not None)

    # --- keeping and ending

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        quiet = None if silence is None else duration(silence)
        return await self._server.run(
            SETTLING,
            lambda unit: settling.renew(unit, beats, duration(lease), quiet, self._server.connections.moment(now)),
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        first, others = settling.sorted_out(settlements, self._server.memory.lent)
        if first.settled:
            others += await self._server.run(SETTLING, lambda unit: settling.complete(unit, first))
        if not others:
            return answers(settlements, [])
        places = {id(settled): place for place, settled in enumerate(settlements)}
        others.sort(key=lambda settled: places[id(settled)])
        stale = await self._server.write(SETTLING, lambda unit: settle_each(unit, others))
        return answers(settlements, stale)

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        quiet = None if silence is None else duration(silence)
        return await self._server.run(
            SETTLING,
            lambda unit: settling.reap(unit, limit, duration(lease), quiet, self._server.connections.moment(now)),
        )

    async def take_over(
        self, process: EndedProcess, limit: int, lease: float, *, now: datetime | None = None
    ) -> list[Claim]:
        at = self._server.connections.moment(now)
        return await self._server.run(
            SETTLING, lambda unit: settling.take_over(unit, process, limit, duration(lease), at)
        )

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        await self._raise_fences()
        taking = claiming.Taking(node, request, self._server.connections.moment(now), duration(lease))
        return await self._server.write(CLAIMING, lambda unit: claiming.claim_held(unit, key, run_id, taking))

    async def read_ahead(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        until: datetime,
        limit: int,
        start: int = 0,
        step: int = 1,
        cursor: str | None = None,
        *,
        now: datetime | None = None,
    ) -> tuple[list[Run], str | None]:
        async def task(unit: PostgresUnit) -> tuple[list[Run], str | None]:
            at = await unit.shown_at(now)
            after = coming_after(cursor, from_micros(at))
            return await claiming.coming(unit, after, to_micros(until), (limit, start, step), node, at)

        runs, following = await self._server.read(task)
        wanted = [run for run in runs if queues is None or run.queue in queues]
        return [run for run in wanted if handlers is None or run.handler in handlers], following

    async def begin(
        self, node: str, runs: Sequence[Run], lease: float, request: int, *, now: datetime | None = None
    ) -> list[Claim | None]:
        await self._raise_fences()
        taking = claiming.Taking(node, request, self._server.connections.moment(now), duration(lease))
        begun = await self._begin(runs, taking, again=False)
        if not begun.fresh:
            claims = await self._server.run(CLAIMING, lambda unit: claiming.lent_before(unit, taking))
            before = {claim.run.id: claim for claim in claims}
            if any(run.id in before for run in runs):
                return [before.get(run.id) for run in runs]
            begun = await self._begin(runs, taking, again=True)
        if begun.in_the_way:
            at = begun.now
            begun = await self._server.write(CLAIMING, lambda unit: claiming.decide_and_begin(unit, runs, taking, at))
        self._vacuum.after(len(begun.claims))
        return [begun.claims.get(run.id) for run in runs]

    async def _begin(self, runs: Sequence[Run], taking: claiming.Taking, *, again: bool) -> claiming.Beginning:
        return await self._server.run(CLAIMING, lambda unit: claiming.begin(unit, runs, taking, again=again))

    async def _promote(self, unit: PostgresUnit, limit: int, now: datetime | None) -> tuple[int, int | None]:
        return await claiming.promote(unit, limit, unit.moment(now))


def _more(lent: claiming.Lending, step: claiming.Step) -> bool:
    """Whether something prevented lending, so that another attempt finds more."""
    return (lent.back and not step.put_back) or lent.undecided is not None or lent.held > 0


async def _know_handlers(asking: claiming.Asking, unit: PostgresUnit) -> None:
    assert asking.staff is not None
    assert asking.handlers is not None
    await claiming.know_handlers(unit, asking.staff, asking.handlers, asking.now)


class PostgresBackend:
    """One session on a database: its own connections and notifier."""

    capabilities: Capabilities = UNKNOWN
    store: Store
    queue: Queue
    coordinator: Coordinator

    @staticmethod
    def from_pool(pool: asyncpg.Pool[Any], *, timeout: float = 5.0) -> PostgresFactory:
        """A backend for the database of an asyncpg pool: `Scheduler(backend=PostgresBackend.from_pool(pool))`.

        Address, credentials, TLS and application name are the pool's. The backend opens its own connections, since it
        keeps some of them for long; the pool itself is not used. `timeout` is the deadline of every call.
        """
        return PostgresFactory(place_of_pool(pool, timeout))

    def __init__(self, place: Place, opening: Opening, clock: StoreClock | None = None) -> None:
        self.url = place.shown
        self.clock = clock or StoreClock(opening.clock)
        self._place = place
        self._opening = opening
        self._listeners: list[Callable[[], None]] = []
        self.connections = Connections(place, checked_namespace(opening.namespace), self.clock, lease=opening.lease)
        self.notifier = Notifier(self.connections)
        session = Session(self.connections, self.notifier, self._report_side_effects)
        self.store = PostgresStore(session)
        self.queue = PostgresQueue(session)
        self.coordinator = SqlCoordinator(session)

    async def open(self) -> None:
        if self.connections.is_open:
            return
        self.notifier.close()  # in a forked child it may still have a connection, which is the parent's
        await self.connections.open()
        self.notifier.open()
        try:
            if self._opening.migrates:
                await migrations.check(self.connections)
            sent = self.clock.monotonic()
            self.clock.read(await self.store.time(), sent)
            await self.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self.notifier.close()
        await self.connections.close()

    def session(self, timeout: float | None = None) -> Self:
        place = self._place if timeout is None else replace(self._place, timeout=min(timeout, self._place.timeout))
        return type(self)(place, self._opening, self.clock)

    def when_others_are_affected(self, call: Callable[[], None]) -> None:
        """Call this after each commit that lets runs wait again, or cancels some, as a side effect."""
        self._listeners.append(call)

    def _report_side_effects(self) -> None:
        for call in self._listeners:
            call()

    async def refresh(self) -> Capabilities:
        self.capabilities = capabilities_of(await self._facts(), self._place)
        return self.capabilities

    async def examine(self) -> list[Finding]:
        return findings(await self._facts(), self._place, self._opening.namespace)

    async def _facts(self) -> ServerInfo:
        return await gather(self.connections, self._opening.clock)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self._opening.namespace!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class PostgresFactory(Struct, frozen=True):
    """Makes backends for one database."""

    place: Place

    def __call__(self, opening: Opening) -> PostgresBackend:
        """A backend, not yet opened. The server's clock decides."""
        check_timeout("timeout", self.place.timeout, opening.lease, self.place.shown)
        return PostgresBackend(self.place, opening)


def open_url(url: str, opening: Opening) -> PostgresBackend:
    """`postgresql://` and `postgres://`; see docs/postgres.md."""
    return PostgresFactory(parse(url))(opening)
