"""A whole node on Redis: what it costs when idle, what it says when the server goes and comes, what it never says."""

import asyncio
import json
import logging
import subprocess
import sys

import pytest
from redis_connections import new_namespace, operator
from tests.conftest import eventually

from duly import Scheduler, SchedulerConfig
from duly.errors import BackendUnavailable
from duly.model.event import Event, ServiceFailed, StoreAway, StoreBack
from duly.testing.servers import redis_server as start_redis

SECRET = "s3cr3t"
SENT = {"evalsha", "script|load", "subscribe", "unsubscribe", "ping", "config|get", "info"}  # not by scripts


def _scheduler(url: str, **config) -> Scheduler:
    scheduler = Scheduler(url, config=SchedulerConfig(namespace=new_namespace(), **config))

    @scheduler.job(name="double")
    async def double(number: int) -> int:
        return 2 * number

    return scheduler


def _calls(client) -> int:
    """How many commands clients have sent."""
    stats = client.info("commandstats")
    return sum(stats[name]["calls"] for name in stats if name.removeprefix("cmdstat_") in SENT)


async def test_a_run_on_redis(redis_url):
    scheduler = _scheduler(redis_url)
    async with scheduler:
        run = await scheduler.submit("double", {"number": 21})
        assert await run.result(timeout=60) == 42


@pytest.mark.parametrize("placement", ["queue", "assign"])
async def test_an_idle_node_sends_few_commands(placement):
    with start_redis() as server, operator(server) as client:
        scheduler = _scheduler(server.url, placement=placement)
        async with scheduler:
            await scheduler.submit("double", {"number": 2}, delay=3600)  # waits to be placed, and assigned or not
            await scheduler.submit("double", {"number": 2}, delay=25)
            await (await scheduler.submit("double", {"number": 1})).result(timeout=60)
            await asyncio.sleep(6)  # what a start takes is over: scripts are loaded, the clock is measured
            client.config_resetstat()
            began = client.time()
            await asyncio.sleep(6)  # longer than a safety tick and a refresh: the whole cycle of an idle node
            ended = client.time()
            sent = _calls(client)
        seconds = ended[0] - began[0] + (ended[1] - began[1]) / 1e6
        assert sent / seconds <= 5


async def test_a_node_lives_through_a_restart_of_its_server():
    with start_redis(appendonly=True) as server:
        scheduler = _scheduler(server.url)
        events: list[Event] = []
        scheduler.subscribe(events.append)
        async with scheduler:
            await asyncio.to_thread(server.restart)

            async def done():
                try:
                    run = await scheduler.submit("double", {"number": 4})
                    return await run.result(timeout=5)
                except BackendUnavailable:
                    return None

            assert await eventually(done) == 8
        assert not [event for event in events if isinstance(event, ServiceFailed)]


async def test_a_restart_without_persistence_is_told_by_an_event():
    with start_redis() as server:
        scheduler = _scheduler(server.url)
        events: list[Event] = []
        scheduler.subscribe(events.append)
        async with scheduler:
            await asyncio.to_thread(server.restart)

            async def told():
                return [event for event in events if isinstance(event, StoreAway) and "forgotten" in event.message]

            await eventually(told)

            async def back():
                return [event for event in events if isinstance(event, StoreBack)]

            await eventually(back)


def test_the_doctor_tells_everything_but_the_password():
    with start_redis(config={"requirepass": SECRET}) as server:
        url = f"redis://:{SECRET}@127.0.0.1:{server.port}/0"
        said = subprocess.run(
            [sys.executable, "-m", "duly", "doctor", "--json", "--url", url],
            capture_output=True,
            text=True,
            check=False,
        )
        subjects = {finding["subject"] for finding in json.loads(said.stdout)}
        assert {"server", "persistence", "memory", "replication", "server clock", "encryption", "promises"} <= subjects
        assert SECRET not in said.stdout + said.stderr


async def test_a_node_never_logs_the_password(caplog):
    caplog.set_level(logging.DEBUG)
    with start_redis(config={"requirepass": SECRET}) as server:
        scheduler = _scheduler(f"redis://:{SECRET}@127.0.0.1:{server.port}/0")
        events: list[Event] = []
        scheduler.subscribe(events.append)
        async with scheduler:
            await asyncio.to_thread(server.restart)

            async def noticed():
                return [event for event in events if isinstance(event, StoreAway)]

            await eventually(noticed)
    assert SECRET not in caplog.text
    assert SECRET not in repr(events)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel"])
def test_a_missing_extra_is_named(scheme):
    script = (
        "import sys; sys.modules['hiredis'] = None\n"
        "from duly.backends import open_backend\n"
        "from duly.ports import Opening\n"
        f"open_backend('{scheme}://user:{SECRET}@host/jobs', Opening())\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'duly[redis]'" in said.stderr
    assert SECRET not in said.stderr.replace(script, "")


def test_no_client_is_imported_before_it_is_needed():
    script = "import sys, duly, duly.backends; print({'hiredis', 'redis'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
    )
