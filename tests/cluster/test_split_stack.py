"""Several processes on PostgreSQL, Redis and etcd together, of which Redis and etcd are taken away."""

import time

import pytest
import redis
from tests.cluster.processes import BEATS_PER_SECOND, Cluster
from tests.postgres_stores import emptied

from duly.testing.servers import etcd_cluster, redis_server, url_of


@pytest.fixture(params=[1])
async def stack(request, tmp_path, postgres_url):
    """A cluster whose Redis and etcd (of so many members) are its own, and may be killed."""
    with redis_server() as ring, etcd_cluster(request.param) as members:
        coordinator = url_of(members, {"timeout": "2"})
        cluster = Cluster(tmp_path, emptied(postgres_url), queue=f"{ring.url}?timeout=1", coordinator=coordinator)
        cluster.ring, cluster.members = ring, members
        async with cluster.client.client():
            yield cluster
            cluster.close()


async def counted(stack, numbers):
    """Submit these, and see that each was done once."""
    runs = await stack.client.submit_many("count", [{"number": number} for number in numbers])
    for run, number in zip(runs, numbers, strict=True):
        assert await run.result(timeout=60) == number
    done = [int(number) for _, number in stack.notes("count")]
    assert sorted(number for number in done if number in numbers) == list(numbers)


def now():
    return round(time.time() * BEATS_PER_SECOND)


async def until_beat(stack, number):
    await stack.until(lambda: max(stack.beats(), default=0) > number, "it beats on")


async def test_a_killed_leader_is_replaced_and_nothing_is_missed_or_doubled(stack):
    await stack.up("a", "b", "c")
    leader = await stack.until(stack.leader, "somebody leads")
    await stack.until(lambda: len(stack.notes("beat")) > 3, "it beats")
    first = now()
    await counted(stack, range(100))
    stack.kill(leader)
    await stack.until(lambda: _other_than(stack, leader), "another leads")
    await until_beat(stack, now() + 5)
    last = now() - 5
    await counted(stack, range(100, 150))
    for name in list(stack.nodes):
        assert stack.stop(name) == 0
    stack.beats_are_complete(first, last)


async def _other_than(stack, name):
    leader = await stack.leader()
    return leader is not None and leader != name


async def test_without_redis_nothing_is_lost_or_doubled_and_health_says_so(stack):
    await stack.up("a", "b")
    await stack.until(lambda: len(stack.notes("beat")) > 3, "it beats")
    first = now()
    await counted(stack, range(50))
    with redis.Redis.from_url(stack.ring.url) as operator:
        operator.flushall()
    await counted(stack, range(50, 100))
    stack.ring.kill()
    await counted(stack, range(100, 150))
    health = await stack.client.health()
    assert health.status == "degraded"
    assert health.parts["queue"].startswith("away: ")
    assert (health.parts["store"], health.parts["coordinator"]) == ("reachable", "reachable")
    stack.ring.restart()
    await stack.until(lambda: _is_well(stack), "all is well again")
    await counted(stack, range(150, 200))
    await until_beat(stack, now() + 2)
    stack.beats_are_complete(first, now() - 5)


async def _is_well(stack):
    return (await stack.client.health()).status == "healthy"


async def test_without_etcd_workers_go_on_and_health_says_so(stack):
    await stack.up("a", "b")
    await stack.until(lambda: len(stack.notes("beat")) > 3, "it beats")
    first = now()
    run = await stack.client.submit("slow", {"name": "x"})
    await stack.until(lambda: stack.notes("begin", "x"), "it has begun")
    for member in stack.members:
        member.kill()
    await counted(stack, range(50))
    health = await stack.client.health()
    assert health.status == "degraded"
    assert health.parts["coordinator"].startswith("away: ")
    assert (health.parts["store"], health.parts["queue"]) == ("reachable", "reachable")
    await until_beat(stack, now() + 15)  # three seconds: longer than every lease, within what is planned ahead
    stack.let_go("x")
    await run.result(timeout=60)
    assert len(stack.notes("begin", "x")) == 1
    for member in stack.members:
        member.launch([each.peer for each in stack.members])
    await stack.until(lambda: _is_well(stack), "all is well again")
    await stack.until(stack.leader, "somebody leads")
    await until_beat(stack, now() + 2)
    stack.beats_are_complete(first, now() - 5)


@pytest.mark.parametrize("stack", [3], indirect=True)
async def test_the_death_of_one_member_of_etcd_is_not_felt(stack):
    await stack.up("a", "b")
    await stack.until(stack.leader, "somebody leads")
    await stack.until(lambda: len(stack.notes("beat")) > 3, "it beats")
    first = now()
    stack.members[0].kill()  # the one that all ask first
    await counted(stack, range(50))
    await until_beat(stack, now() + 15)
    assert {node.id for node in await stack.client.nodes()} == {"a", "b"}
    stack.beats_are_complete(first, now() - 5)


async def test_nodes_that_start_without_etcd_work_and_lead_when_it_is_there(stack):
    [member] = stack.members
    member.kill()
    for name in ("a", "b"):
        stack.start(name)
    await counted(stack, range(20))
    assert stack.notes("beat") == []
    member.launch([member.peer])
    await stack.until(stack.leader, "somebody leads")
    await stack.until(lambda: len(stack.notes("beat")) > 3, "it beats")

    async def both_are_present() -> bool:
        return {node.id for node in await stack.client.nodes()} == {"a", "b"}

    await stack.until(both_are_present, "both nodes have announced themselves")
