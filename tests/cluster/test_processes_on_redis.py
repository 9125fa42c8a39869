"""Several processes on one Redis server, which may itself be killed, paused, or lose what it had."""

import time

import pytest
from tests.cluster.processes import Cluster

from duly import BackendUnavailable, State
from duly.testing.servers import redis_server

TEN = [f"n{number}" for number in range(10)]


async def test_every_instant_is_run_once_by_one_of_ten(redis_cluster):
    await redis_cluster.up(*TEN)
    await redis_cluster.until(lambda: len(redis_cluster.notes("beat")) > 3, "it beats")
    first = round(time.time() * 5)
    await redis_cluster.until(lambda: len(redis_cluster.notes("beat")) > 25, "it goes on beating")
    last = round(time.time() * 5) - 2
    assert [redis_cluster.stop(name) for name in TEN] == [0] * 10
    redis_cluster.beats_are_complete(first, last)


async def test_a_restart_of_a_durable_server_loses_nothing_that_was_acknowledged(redis_cluster):
    await redis_cluster.up("a", "b", "c")
    runs = await redis_cluster.client.submit_many("count", [{"number": number} for number in range(200)])
    later = await redis_cluster.client.submit_many("count", [{"number": number} for number in range(200, 400)], delay=1)
    redis_cluster.server.restart()
    for number, run in enumerate([*runs, *later]):
        assert await run.result(timeout=60) == number
    counted = {int(number) for _, number in redis_cluster.notes("count")}
    assert counted == set(range(400))
    first = round(time.time() * 5)
    await redis_cluster.until(lambda: max(redis_cluster.beats(), default=0) > first + 10, "it beats again")
    redis_cluster.beats_are_complete(first, first + 10)


async def test_live_work_is_not_repeated_after_an_outage_of_the_server(redis_cluster):
    """The server is away for longer than every lease; nobody died, so nobody's work is taken over."""
    await redis_cluster.up("a", "b")
    run = await redis_cluster.client.submit("slow", {"name": "x"})
    await redis_cluster.until(lambda: redis_cluster.notes("begin", "x"), "it has begun")
    redis_cluster.server.pause()
    gone_at = time.monotonic()
    await redis_cluster.until(lambda: time.monotonic() > gone_at + 4, "every lease has run out")
    redis_cluster.server.resume()
    first = round(time.time() * 5) + 5
    await redis_cluster.until(lambda: max(redis_cluster.beats(), default=0) > first + 15, "it beats again")
    redis_cluster.let_go("x")
    await run.result(timeout=40)
    assert len(redis_cluster.notes("begin", "x")) == 1
    assert (await run.get()).losses == 0


@pytest.fixture
async def forgetful(tmp_path, monkeypatch):
    """A cluster on a server that keeps nothing on disk."""
    monkeypatch.setenv("CLUSTER_MAY_LOSE", "1")
    with redis_server(folder=tmp_path / "redis") as server:
        cluster = Cluster(tmp_path, server.url)
        cluster.server = server
        async with cluster.client.client():
            yield cluster
            cluster.close()


async def test_a_server_that_forgot_everything_is_noticed_and_work_goes_on(forgetful):
    await forgetful.up("a", "b")
    await forgetful.until(lambda: len(forgetful.notes("beat")) > 3, "it beats")
    forgetful.server.restart()
    first = round(time.time() * 5) + 10
    await forgetful.until(lambda: max(forgetful.beats(), default=0) > first + 15, "it beats again")
    assert "has forgotten everything" in forgetful.logs()
    with pytest.raises(BackendUnavailable, match="not the store it was"):  # whoever was connected is told once
        await forgetful.client.submit("count", {"number": 1})
    run = await forgetful.client.submit("count", {"number": 1})
    assert await run.result(timeout=40) == 1
    assert (await run.get()).state is State.COMPLETED
