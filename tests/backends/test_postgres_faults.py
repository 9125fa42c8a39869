"""A PostgreSQL server that dies, hangs, restarts, closes connections or takes no writes: told apart, and mended."""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import pytest
from msgspec.structs import replace
from tests.conftest import eventually
from tests.postgres_stores import terminated

from duly.backends.postgres.connection import Connections
from duly.backends.postgres.errors import translated
from duly.backends.postgres.notify import Notifier
from duly.backends.postgres.url import parse
from duly.backends.sql.notify import KINDS, SHARED, WORK
from duly.errors import BackendError, BackendUnavailable
from duly.testing.postgres_servers import postgres_server


@pytest.fixture(scope="module")
def server():
    """One that may be harmed; each test leaves it running."""
    with postgres_server(config={"max_connections": "20", "superuser_reserved_connections": "0"}) as server:
        yield server


@asynccontextmanager
async def session(url, options="?timeout=60"):
    connections = Connections(parse(url + options), "faults")
    bell = Notifier(connections)
    await connections.open()
    bell.open()
    try:
        yield connections, bell
    finally:
        bell.close()
        await connections.close()


@contextmanager
def hanging(server, connections):
    """A server that does not answer, and callers who wait for a moment only; before and after they have time."""
    patient = connections.place
    server.pause()
    connections.place = connections._connector.place = replace(patient, timeout=0.3)
    try:
        yield
    finally:
        connections.place = connections._connector.place = patient
        server.resume()


async def one(connection):
    return await connection.fetchval("SELECT 1")


async def answers(connections):
    try:
        return await connections["store"].run(one) == 1
    except BackendUnavailable:
        return False


async def ring(connections, kinds):
    await connections["store"].run(
        lambda c: c.execute("SELECT pg_notify($1, $2)", connections.texts.channel, str(kinds))
    )


# --- calls


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_that_ends_is_unavailable_until_it_is_back(server, how):
    async with session(server.url) as (connections, _):
        begun = asyncio.Event()

        async def long(connection):
            begun.set()
            await connection.fetchval("SELECT pg_sleep(60)")

        under_way = asyncio.create_task(connections["other"].run(long))
        await begun.wait()
        await asyncio.to_thread(getattr(server, how))
        with pytest.raises(BackendUnavailable):
            await under_way
        for _ in range(3):
            with pytest.raises(BackendUnavailable):
                await connections["store"].run(one)
        await asyncio.to_thread(server.start)
        await eventually(lambda: answers(connections))


async def test_a_server_that_hangs_is_given_up_after_the_deadline_and_found_again(server):
    async with session(server.url) as (connections, _):
        assert await connections["store"].run(one) == 1
        with hanging(server, connections):
            with pytest.raises(BackendUnavailable, match=r"did not answer within 0\.3 s"):
                await connections["store"].run(one)
            with pytest.raises(BackendUnavailable, match=r"did not let us in within 0\.3 s"):
                await connections["store"].run(one)
        await eventually(lambda: answers(connections))


async def test_all_who_wait_behind_a_hanging_server_fail_with_the_first(server):
    async with session(server.url) as (connections, _):
        await connections["store"].run(one)
        with hanging(server, connections):
            tried = await asyncio.gather(*(connections["store"].run(one) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(error, BackendUnavailable) for error in tried)
        knocked = {str(error) for error in tried}
        assert len(knocked) == 2  # one who had asked, one who knocked; the others were told


async def test_work_closed_while_the_server_hangs_ends_at_once(server):
    async with session(server.url, "?timeout=600") as (connections, _):
        await connections["store"].run(one)
        server.pause()
        try:
            under_way = asyncio.create_task(connections["store"].run(one))
            await asyncio.sleep(0)
            await connections.close()
            with pytest.raises(BackendUnavailable):
                await under_way
        finally:
            server.resume()


async def test_a_server_with_no_connection_left_says_so(server):
    async with session(server.url) as (connections, _):
        taken = []
        try:
            with pytest.raises(BackendUnavailable, match="max_connections"):
                while True:
                    taken.append(await connections.connect())
        finally:
            for connection in taken:
                await connection.close()
        await eventually(lambda: answers(connections))


async def test_a_deadlock_may_be_tried_again(server):
    async with session(server.url) as (connections, _):
        both = asyncio.Barrier(2)

        async def grab(connection, first, second):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", first)
            await both.wait()
            await connection.execute("SELECT pg_advisory_xact_lock($1)", second)

        tried = await asyncio.gather(
            connections["a"].transact(lambda c: grab(c, 1, 2)),
            connections["b"].transact(lambda c: grab(c, 2, 1)),
            return_exceptions=True,
        )
        [lost] = [error for error in tried if error is not None]
        assert isinstance(lost, BackendUnavailable)
        assert "40P01" in str(lost)


# --- standbys


async def test_a_standby_takes_no_writes_and_the_one_that_does_is_found(server):
    with server.standby() as other:
        async with session(other.url) as (connections, _):
            assert await connections["store"].run(one) == 1
            with pytest.raises(BackendUnavailable, match="takes no writes"):
                await connections["store"].run(lambda c: c.execute("CREATE TABLE things (n int)"))
            assert connections["store"].live is not None
            assert connections["store"].live.is_closed()  # the next one may lead elsewhere
        both = f"postgresql://duly:in-tests-only@127.0.0.1:{other.port},127.0.0.1:{server.port}/postgres"
        async with session(both) as (connections, _):
            port = await connections["store"].run(lambda c: c.fetchval("SELECT current_setting('port')::int"))
            assert port == server.port
            await asyncio.to_thread(server.kill)
            try:
                assert not await answers(connections)
                async with session(other.url) as (operator, _):
                    await operator["store"].run(lambda c: c.fetchval("SELECT pg_promote()"), timeout=60)
                await eventually(lambda: answers(connections))
                assert (
                    await connections["store"].run(lambda c: c.fetchval("SELECT current_setting('port')::int"))
                    == other.port
                )
            finally:
                await asyncio.to_thread(server.start)


# --- the bell


async def test_a_ring_is_heard_by_other_sessions_and_only_by_those_it_is_for(server):
    async with session(server.url) as (_, bell), session(server.url) as (others, _):
        assert await bell.listen()
        assert not await bell.listen()
        work, shared = bell.rings[WORK], bell.rings[SHARED]
        waiting = asyncio.create_task(bell.wait(WORK, work, 60))
        await ring(others, WORK)
        assert await waiting == work + 1
        assert bell.rings[SHARED] == shared
        assert await bell.wait(SHARED, shared, 0.01) == shared


async def test_a_bell_whose_connection_was_closed_rings_and_listens_again(server):
    async with session(server.url) as (_, bell), session(server.url) as (operator, _):
        await bell.listen()
        heard = bell.rings[WORK]
        waiting = asyncio.create_task(bell.wait(WORK, heard, 60))
        await operator["store"].run(lambda c: terminated(c, "query LIKE 'LISTEN%'"))
        heard = await waiting
        waiting = asyncio.create_task(bell.wait(WORK, heard, 60))
        await ring(operator, sum(KINDS))
        assert await waiting > heard


async def test_who_waits_for_the_bell_through_an_outage_waits_on_and_is_rung_at_its_end(server):
    async with session(server.url) as (_, bell):
        await bell.listen()
        heard = bell.rings[WORK]
        waiting = asyncio.create_task(bell.wait(WORK, heard, 60))
        await asyncio.to_thread(server.kill)
        assert await bell.wait(WORK, bell.rings[WORK], 0.05) == heard
        assert not waiting.done()
        await asyncio.to_thread(server.start)
        assert await waiting > heard


async def test_a_silent_bell_is_asked_for_a_sign_of_life(server, monkeypatch):
    monkeypatch.setattr("duly.backends.postgres.notify._SILENCE", 0.02)
    async with session(server.url) as (connections, bell):
        await bell.listen()
        heard = bell.rings[WORK]
        assert await bell.wait(WORK, heard, 0.1) == heard  # asked, answered, and slept on
        with hanging(server, connections):
            waiting = asyncio.create_task(bell.wait(WORK, heard, 60))
            await eventually(lambda: asyncio.sleep(0, bell._connection is None), "the dead connection is noticed")
        assert await waiting > heard


async def test_who_waits_for_a_bell_that_is_closed_is_told(server):
    async with session(server.url) as (_, bell):
        await bell.listen()
        waiting = asyncio.create_task(bell.wait(WORK, bell.rings[WORK], 60))
        await asyncio.sleep(0)
        bell.close()
        with pytest.raises(BackendError, match="was closed"):
            await waiting


# --- words


@pytest.mark.parametrize(
    ("error", "passing", "said"),
    [
        (asyncpg.TooManyConnectionsError("x"), True, "max_connections"),
        (asyncpg.AdminShutdownError("x"), True, "stopping"),
        (asyncpg.CannotConnectNowError("x"), True, "starting"),
        (asyncpg.SerializationError("x"), True, "beside others"),
        (asyncpg.DiskFullError("x"), True, "no disk left"),
        (asyncpg.QueryCanceledError("x"), True, "statement_timeout"),
        (asyncpg.InterfaceError("connection is closed"), True, "cannot be reached"),
        (ConnectionError('server at "h:1" rejected SSL upgrade'), True, "speaks no TLS"),
        (asyncpg.InternalClientError("cannot switch to state 12"), True, "cannot be reached"),
        (ConnectionRefusedError(111, "refused"), True, "cannot be reached"),
        (asyncpg.InvalidCatalogNameError("x"), False, "no such database"),
        (asyncpg.InvalidPasswordError("x"), False, "does not know this user"),
        (asyncpg.InsufficientPrivilegeError("x"), False, "CREATE on the database"),
        (asyncpg.UndefinedTableError("x"), False, "duly migrate"),
        (asyncpg.InvalidSQLStatementNameError("x"), False, "pooler=transaction"),
        (asyncpg.DuplicatePreparedStatementError("x"), False, "pooler=transaction"),
        (asyncpg.InterfaceError("another operation is in progress"), False, "InterfaceError"),
        (asyncpg.UniqueViolationError("x"), False, "23505"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_server_says_in_our_words(error, passing, said):
    ours = translated(error, "postgresql://host/jobs")
    assert isinstance(ours, BackendUnavailable) is passing
    assert isinstance(ours, BackendError)
    assert said in str(ours)
    assert "postgresql://host/jobs" in str(ours)
