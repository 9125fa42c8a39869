"""Connections: work in turn under a deadline, whole or not at all, on connections that come back by themselves."""

import asyncio
import gc
import os

import asyncpg
import pytest
from tests.postgres_stores import terminated

from duly.backends.postgres.connection import Connections
from duly.backends.postgres.url import parse
from duly.errors import BackendError, BackendUnavailable


@pytest.fixture
async def connections(postgres_url):
    connections = Connections(parse(postgres_url), "connections")
    await connections.open()
    yield connections
    await connections.close()


async def one(connection):
    return await connection.fetchval("SELECT 1")


async def test_work_runs_in_turn(connections):
    order = []

    async def work(connection, number):
        await connection.fetchval("SELECT pg_sleep(0.001)")
        order.append(number)

    await asyncio.gather(*(connections["store"].run(lambda c, n=n: work(c, n)) for n in range(5)))
    assert order == [0, 1, 2, 3, 4]


async def test_lanes_do_not_wait_for_each_other(connections):
    locked = asyncio.Event()
    unlock = asyncio.Event()

    async def long(connection):
        locked.set()
        await unlock.wait()

    under_way = asyncio.create_task(connections["slow"].run(long))
    await locked.wait()
    assert await connections["fast"].run(one) == 1
    unlock.set()
    await under_way


async def test_a_transaction_is_all_or_nothing(connections):
    await connections["store"].run(lambda c: c.execute("CREATE TEMPORARY TABLE things (n int)"))

    async def fails(connection):
        await connection.execute("INSERT INTO things VALUES (1)")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await connections["store"].transact(fails)
    assert await connections["store"].run(lambda c: c.fetchval("SELECT count(*) FROM things")) == 0


async def test_work_that_does_not_end_in_time_is_unavailable_and_the_next_goes_on(connections):
    with pytest.raises(BackendUnavailable, match=r"did not answer within 0\.05 s"):
        await connections["store"].run(lambda c: c.fetchval("SELECT pg_sleep(60)"), timeout=0.05)
    assert await connections["store"].run(one) == 1


async def test_a_cancelled_caller_leaves_its_work_to_end_whole(connections):
    await connections["store"].run(lambda c: c.execute("CREATE TEMPORARY TABLE things (n int)"))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def two(connection):
        await connection.execute("INSERT INTO things VALUES (1)")
        begun.set()
        await go_on.wait()
        await connection.execute("INSERT INTO things VALUES (2)")

    caller = asyncio.create_task(connections["store"].transact(two))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    assert await connections["store"].run(lambda c: c.fetchval("SELECT count(*) FROM things")) == 2


async def test_a_caller_cancelled_in_the_line_does_nothing(connections):
    go_on = asyncio.Event()
    first = asyncio.create_task(connections["store"].run(lambda c: go_on.wait()))
    done = []

    async def note(connection):
        done.append(1)

    second = asyncio.create_task(connections["store"].run(note))
    await asyncio.sleep(0)
    second.cancel()
    go_on.set()
    await asyncio.gather(first, second, return_exceptions=True)
    await connections["store"].run(one)
    assert done == []


async def test_a_connection_ended_by_an_administrator_is_made_anew(connections, postgres_url):
    pid = await connections["store"].run(lambda c: c.fetchval("SELECT pg_backend_pid()"))

    async def killed(connection):
        await connections["other"].run(lambda c: terminated(c, f"pid = {pid}"))
        return await connection.fetchval("SELECT 1")

    with pytest.raises(BackendUnavailable):
        await connections["store"].run(killed)
    assert await connections["store"].run(lambda c: c.fetchval("SELECT pg_backend_pid()")) != pid


async def test_work_on_a_closed_session_is_refused_and_who_waits_is_told(postgres_url):
    connections = Connections(parse(postgres_url), "connections")
    with pytest.raises(BackendError, match="is not open"):
        connections["store"]
    await connections.open()
    begun = asyncio.Event()

    async def sleeps(connection):
        begun.set()
        await connection.fetchval("SELECT pg_sleep(60)")

    waiting = asyncio.create_task(connections["store"].run(sleeps))
    await begun.wait()
    await connections.close()
    with pytest.raises(BackendUnavailable):
        await waiting
    with pytest.raises(BackendError, match="is not open"):
        connections["store"]
    await connections.close()


async def test_another_loop_is_refused(connections):
    async def elsewhere():
        with pytest.raises(BackendError, match="another event loop"):
            connections["store"]

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_a_forked_child_refuses_and_leaves_the_parent_alone(connections):
    assert await connections["store"].run(one) == 1
    child = os.fork()
    if child == 0:
        try:
            connections["store"]
        except BackendError as exc:
            os._exit(0 if "forked" in str(exc) else 1)
        os._exit(2)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert await connections["store"].run(one) == 1


async def test_a_refusal_of_the_server_is_an_error_that_says_so(connections):
    with pytest.raises(BackendError, match="22012") as refused:
        await connections["store"].run(lambda c: c.fetchval("SELECT 1 / 0"))
    assert not isinstance(refused.value, BackendUnavailable)
    assert isinstance(refused.value.__cause__, asyncpg.DivisionByZeroError)


async def test_a_connection_apart_is_used_again_when_it_came_back_whole(connections):
    async with connections.apart() as first:
        await first.execute("SET statement_timeout = 12345")
        pid = first.get_server_pid()
    async with connections.apart() as second, connections.apart() as third:
        assert second.get_server_pid() == pid
        assert third.get_server_pid() != pid
        assert await second.fetchval("SHOW statement_timeout") == "0"
    with pytest.raises(LookupError):
        async with connections.apart() as broken:
            spoilt = broken.get_server_pid()
            raise LookupError
    async with connections.apart() as fresh, connections.apart() as another:
        assert spoilt not in {fresh.get_server_pid(), another.get_server_pid()}


async def test_work_that_fails_after_its_caller_was_cancelled_is_not_reported_as_forgotten(connections):
    """A stop cancels services while their calls are under way, and then closes the connections."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    begun = asyncio.Event()

    async def endless(connection):
        begun.set()
        await connection.fetchval("SELECT pg_sleep(60)")

    caller = asyncio.create_task(connections["store"].run(endless))
    await begun.wait()
    caller.cancel()
    await asyncio.wait([caller])
    await connections.close()
    del caller
    gc.collect()
    assert complaints == []
