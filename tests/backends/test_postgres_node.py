"""A whole node on PostgreSQL: through outages and a pooler, what it costs when idle, and what it never says."""

import asyncio
import json
import logging
import re
import secrets
import subprocess
import sys

import asyncpg
import pytest
from postgres_proxies import pooler_in_front_of
from tests.conftest import eventually

from duly import Context, Scheduler, SchedulerConfig
from duly.errors import BackendUnavailable
from duly.model.event import Event, ServiceFailed, StoreAway, StoreBack
from duly.testing.postgres_servers import PASSWORD, postgres_server


@pytest.fixture(scope="module")
def server():
    """One that may be harmed; each test leaves it running."""
    with postgres_server(trust=True) as server:
        yield server


def _scheduler(url: str, **config) -> Scheduler:
    scheduler = Scheduler(url, config=SchedulerConfig(namespace=f"node_{secrets.token_hex(6)}", **config))

    @scheduler.job(name="double")
    async def double(number: int) -> int:
        return 2 * number

    return scheduler


def _doubled(scheduler, number):
    """Submit and wait, whatever the server does meanwhile."""

    async def done():
        try:
            return await (await scheduler.submit("double", {"number": number})).result(timeout=10)
        except (BackendUnavailable, TimeoutError):
            return None

    return done


def _listening(scheduler) -> list[Event]:
    events: list[Event] = []
    scheduler.subscribe(events.append)
    return events


async def _told(events, kind):
    async def told():
        return [event for event in events if isinstance(event, kind)]

    await eventually(told, f"the node says {kind.__name__}")


async def test_a_run_on_postgresql(postgres_url):
    scheduler = _scheduler(postgres_url)
    async with scheduler:
        run = await scheduler.submit("double", {"number": 21})
        assert await run.result(timeout=60) == 42


@pytest.mark.parametrize("how", ["restart", "stop"])
async def test_a_node_lives_through_the_end_of_its_server(server, how):
    scheduler = _scheduler(server.url)
    events = _listening(scheduler)
    async with scheduler:
        await asyncio.to_thread(getattr(server, how))
        if how == "stop":
            await _told(events, StoreAway)
            await asyncio.to_thread(server.start)
        assert await eventually(_doubled(scheduler, 4)) == 8
        if how == "stop":
            await _told(events, StoreBack)
    assert not [event for event in events if isinstance(event, ServiceFailed)]


async def test_a_node_lives_through_a_pause_of_its_server(server):
    scheduler = _scheduler(f"{server.url}?timeout=0.5")
    events = _listening(scheduler)
    async with scheduler:
        assert await (await scheduler.submit("double", {"number": 1})).result(timeout=60) == 2
        server.pause()
        try:
            with pytest.raises(BackendUnavailable):
                await scheduler.submit("double", {"number": 2})
        finally:
            server.resume()
        assert await eventually(_doubled(scheduler, 3)) == 6
    assert not [event for event in events if isinstance(event, ServiceFailed)]


async def test_a_node_lives_through_the_loss_of_all_its_connections(server):
    scheduler = _scheduler(server.url)
    events = _listening(scheduler)
    async with scheduler:
        assert await (await scheduler.submit("double", {"number": 1})).result(timeout=60) == 2
        operator = await asyncpg.connect(server.url)
        try:
            await operator.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'duly'"
            )
        finally:
            await operator.close()
        assert await eventually(_doubled(scheduler, 5)) == 10
    assert not [event for event in events if isinstance(event, ServiceFailed)]


async def test_a_node_behind_a_pooler_works_on_few_connections(server):
    async with pooler_in_front_of(server, size=3) as port:
        scheduler = _scheduler(f"postgresql://duly@127.0.0.1:{port}/postgres")
        events = _listening(scheduler)

        @scheduler.job(name="pay", delivery="exactly_once")
        async def pay(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("SELECT $1::int", (1,))

        async with scheduler:
            runs = await scheduler.submit_many("double", [{"number": number} for number in range(50)])
            assert [await run.result(timeout=60) for run in runs] == [2 * number for number in range(50)]
            assert await (await scheduler.submit("pay")).result(timeout=60) is None
        assert not [event for event in events if isinstance(event, ServiceFailed)]


async def test_an_idle_node_asks_little():
    with postgres_server(config={"log_statement": "all"}) as server:
        scheduler = _scheduler(server.url)
        async with scheduler:
            await (await scheduler.submit("double", {"number": 1})).result(timeout=60)
            loop = asyncio.get_running_loop()
            began, said = loop.time(), len(server.log.read_text())
            await asyncio.sleep(6)  # longer than a safety tick and a refresh: the whole cycle of an idle node
            asked = re.findall(r"^LOG:  (?:execute|statement)", server.log.read_text()[said:], re.MULTILINE)
            assert len(asked) / (loop.time() - began) <= 10


async def test_a_node_never_says_the_password(postgres_server, caplog):
    caplog.set_level(logging.DEBUG)
    scheduler = _scheduler(postgres_server.url)
    events = _listening(scheduler)
    async with scheduler:
        assert await (await scheduler.submit("double", {"number": 1})).result(timeout=60) == 2
    assert PASSWORD not in caplog.text + repr(events) + repr(scheduler)


def test_the_doctor_tells_everything_but_the_password(postgres_server):
    said = subprocess.run(
        [sys.executable, "-m", "duly", "doctor", "--json", "--url", postgres_server.url],
        capture_output=True,
        text=True,
        check=False,
    )
    subjects = {finding["subject"] for finding in json.loads(said.stdout)}
    assert {"server", "persistence", "connections", "schema", "vacuum", "server clock", "promises"} <= subjects
    assert PASSWORD not in said.stdout + said.stderr


def test_a_missing_extra_is_named():
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from duly.backends import open_backend\n"
        "from duly.ports import Opening\n"
        f"open_backend('postgresql://user:{PASSWORD}@host/jobs', Opening())\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'duly[postgres]'" in said.stderr
    assert PASSWORD not in said.stderr.replace(script, "")


def test_no_driver_is_imported_before_it_is_needed():
    script = "import sys, duly, duly.backends; print('asyncpg' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
