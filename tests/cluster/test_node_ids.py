"""Two processes under one node id are noticed; one that follows a dead one is not kept waiting."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest
from tests import postgres_stores
from tests.conftest import emptied, eventually

from duly import Scheduler, SchedulerConfig
from duly.errors import ConfigurationError
from duly.model.event import NodeIdShared


def node(url, **config):
    scheduler = Scheduler(url, SchedulerConfig(node_id="worker-1", **{"lock_ttl": 1.5} | config))
    scheduler.shared = []
    scheduler.subscribe(scheduler.shared.append, NodeIdShared)
    return scheduler


@pytest.fixture(params=["sqlite", "redis", "postgres", "memory"])
def shared_url(request, tmp_path):
    match request.param:
        case "memory":
            return f"memory://{tmp_path.name}"
        case "sqlite":
            return f"sqlite:///{tmp_path}/duly.db"
        case "redis":
            return emptied(request.getfixturevalue("redis_url"))
        case _:
            return postgres_stores.emptied(request.getfixturevalue("postgres_url"))


async def test_two_nodes_that_both_live_tell_each_others_process_until_one_is_gone(shared_url):
    """In one process here, as on two machines: neither can know before it starts."""
    one, two = node(shared_url), node(shared_url)
    await one.start()
    await two.start()

    async def both_know():
        return one.shared and two.shared

    await eventually(both_know, "each has met the other")
    assert (one.shared[0].host, one.shared[0].pid) == (socket.gethostname(), os.getpid())
    health = await one.health()
    assert health.status == "unhealthy"
    assert health.failing["node id"].startswith(f"also used by process {os.getpid()} on {socket.gethostname()}")
    await two.stop()

    async def well_again():
        return (await one.health()).status == "healthy"

    await eventually(well_again, "it has the id for itself")
    assert [each.id for each in await one.nodes()] == ["worker-1"]
    await one.stop()


async def test_a_node_that_comes_back_after_its_loop_was_forgotten_is_no_namesake(tmp_path):
    url = f"sqlite:///{tmp_path}/duly.db"
    one = node(url)

    async def forgotten():
        await one.start()

    await asyncio.to_thread(lambda: asyncio.run(forgotten()))
    two = node(url)
    async with two:
        await asyncio.sleep(1.5)
        assert two.shared == []
        assert (await two.health()).status == "healthy"


PROGRAM = """
import sys
from duly import Scheduler, SchedulerConfig
Scheduler(sys.argv[1], SchedulerConfig(node_id="worker-1", lock_ttl=60)).run_forever(log_level="ERROR")
"""


@pytest.fixture
def first(tmp_path):
    """A process under that id."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path}/duly.db"])
    yield process
    process.kill()
    process.wait()


async def test_a_process_beside_one_that_lives_is_refused_and_one_after_it_is_not(tmp_path, first):
    url = f"sqlite:///{tmp_path}/duly.db"
    client, late = Scheduler(url), node(url, lock_ttl=60)

    async def pids():
        return [each.pid for each in await client.nodes()]

    async def is_up():
        return await pids() == [first.pid]

    async with client.client():
        await eventually(is_up, "the first is up")
        with pytest.raises(ConfigurationError, match=f"'worker-1' is in use by process {first.pid} on "):
            await late.start()
        assert not late.is_running
        assert await pids() == [first.pid]
        first.kill()
        await asyncio.to_thread(first.wait)
        assert await pids() == [first.pid]  # its presence has not lapsed
        await late.start()
        assert await pids() == [os.getpid()]
        await late.stop()
