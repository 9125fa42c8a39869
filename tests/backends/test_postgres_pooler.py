"""A pooler in transaction mode: found out by itself; nothing is kept in a session, and waiting looks, not listens.

Where there is a `pgbouncer` on the PATH, it is tried as well; a small one of our own always is.
"""

import asyncio
import shutil
import time
import uuid
from contextlib import asynccontextmanager

import pytest
from postgres_proxies import pooler_in_front_of

from duly.backends.postgres.connection import Connections
from duly.backends.postgres.migrations import check
from duly.backends.postgres.notify import POLL, Notifier
from duly.backends.postgres.session import Session
from duly.backends.postgres.url import parse
from duly.backends.sql.coordinator import SqlCoordinator
from duly.backends.sql.notify import WORK
from duly.errors import BackendUnavailable
from duly.testing.postgres_servers import postgres_server, programs
from duly.testing.servers import free_port

POOLERS = ["ours", *(["pgbouncer"] if shutil.which("pgbouncer") else [])]


@pytest.fixture(scope="module")
def server():
    with postgres_server(trust=True) as server:
        yield server


@asynccontextmanager
async def pgbouncer_in_front_of(server, folder):
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        "[databases]\n"
        f"postgres = host=127.0.0.1 port={server.port} user=duly\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\n"
    )
    own = programs().user is not None  # it does not run as root either
    process = await asyncio.create_subprocess_exec("pgbouncer", "-q", *(["-u", "nobody"] if own else []), str(settings))
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            else:
                writer.close()
                break
        yield port
    finally:
        process.kill()
        await process.wait()


@pytest.fixture(params=POOLERS)
async def pooled(request, server, tmp_path):
    """The URL of a server behind a pooler with two connections."""
    front = pooler_in_front_of(server) if request.param == "ours" else pgbouncer_in_front_of(server, tmp_path)
    async with front as port:
        yield f"postgresql://duly@127.0.0.1:{port}/postgres"


@asynccontextmanager
async def session(url, options=""):
    connections = Connections(parse(url + options, {}), uuid.uuid4().hex)
    bell = Notifier(connections)
    await connections.open()
    bell.open()
    try:
        yield connections, bell
    finally:
        bell.close()
        await connections.close()


@pytest.mark.parametrize("options", ["", "?pooler=transaction"])
async def test_many_lanes_share_a_few_connections_statement_by_statement(pooled, options):
    async with session(pooled, options) as (connections, _):
        await check(connections)
        assert connections.pooled

        async def add(connection, number):
            return await connection.fetchval("SELECT $1::bigint + length($2::text)", number, "abc")

        names = [f"purpose{number}" for number in range(6)]
        for _ in range(5):
            sums = await asyncio.gather(
                *(connections[name].run(lambda c, n=n: add(c, n)) for n, name in enumerate(names))
            )
            assert sums == [3, 4, 5, 6, 7, 8]


async def test_the_coordinator_works_through_a_pooler(pooled):
    async with session(pooled) as (connections, bell):
        await check(connections)
        coordinator = SqlCoordinator(Session(connections, bell, lambda: None))
        lease = await coordinator.acquire("leader", "a", 10)
        assert lease is not None
        assert await coordinator.acquire("leader", "b", 10) is None
        [renewed] = await coordinator.renew([lease], 20)
        assert renewed is not None
        async with asyncio.timeout(30):
            watch = coordinator.watch("config")
            await coordinator.put("config", b"1")
            assert (await anext(watch)).value == b"1"
            await coordinator.put("config", b"2")
            assert (await anext(watch)).value == b"2"
            await watch.aclose()


async def test_waiting_through_a_pooler_ends_soon_and_without_listening(pooled):
    async with session(pooled) as (connections, bell):
        await connections["store"].run(lambda c: c.fetchval("SELECT 1"))
        assert not await bell.listen()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await bell.wait(WORK, bell.rings[WORK], 60) == bell.rings[WORK]
        assert loop.time() - begun >= POLL
        assert bell._connection is None


async def test_a_bell_that_finds_the_pooler_first_does_not_listen(pooled):
    async with session(pooled) as (connections, bell):
        assert await bell.wait(WORK, bell.rings[WORK], 60) == 0
        assert connections.pooled


async def test_work_that_is_too_late_leaves_no_transaction_behind(pooled):
    async with session(pooled) as (connections, _):
        with pytest.raises(BackendUnavailable, match="did not answer"):
            await connections["store"].transact(lambda c: c.fetchval("SELECT pg_sleep(0.3)"), timeout=0.1)
        abandoned = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        for _ in range(4):
            assert await connections["store"].run(lambda c: c.fetchval(abandoned)) == 0


async def test_a_server_without_a_pooler_is_known_as_such(server):
    async with session(server.url) as (connections, _):
        await connections["store"].run(lambda c: c.fetchval("SELECT 1"))
        assert not connections.pooled
