"""A service on PostgreSQL, Redis and etcd of which one is away: what it says names that part, and no other."""

import pytest
from tests.api.api_support import Caller
from tests.postgres_stores import emptied

from duly import Scheduler, SchedulerConfig
from duly.api import Api, ApiSettings
from duly.testing.servers import etcd_server, redis_server


@pytest.fixture
async def split(postgres_url):
    with redis_server() as ring, etcd_server() as seat:
        scheduler = Scheduler(
            store=emptied(postgres_url),
            queue=f"{ring.url}?timeout=1",
            coordinator=f"{seat.url}?timeout=1",
            config=SchedulerConfig(lock_ttl=15.0, leader_ttl=1.0),
        )
        async with scheduler:
            caller = Caller(Api(scheduler, ApiSettings(authentication="none")), client=("127.0.0.1", 1))
            yield caller, ring, seat


async def _health(caller):
    answer = await caller.get("/health")
    return answer.status, answer.json


async def test_all_parts_are_named_while_all_is_well(split):
    caller, _, _ = split
    status, health = await _health(caller)
    assert status == 200
    assert health["parts"] == {"store": "reachable", "queue": "reachable", "coordinator": "reachable"}
    assert health["coordinator_health"] is True


async def test_without_etcd_the_coordinator_is_away_and_the_store_is_not(split):
    caller, _, seat = split
    seat.kill()
    status, health = await _health(caller)
    assert (status, health["status"]) == (200, "degraded")
    assert health["parts"] == {"store": "reachable", "queue": "reachable", "coordinator": "away"}
    assert health["coordinator_health"] is False
    assert any("coordinator" in reason for reason in health["reasons"])
    assert (await caller.get("/readyz")).status == 200
    assert (await caller.get("/metrics")).status == 200
    assert (await caller.get("/queues")).status == 200
    nodes = await caller.get("/nodes")
    assert (nodes.status, nodes.problem["type"]) == (503, "urn:duly:problem:coordinator-away")
    assert "coordinator" in nodes.problem["detail"]


async def test_without_redis_the_queue_is_away(split):
    caller, ring, _ = split
    ring.kill()
    status, health = await _health(caller)
    assert (status, health["status"]) == (200, "degraded")
    assert health["parts"] == {"store": "reachable", "queue": "away", "coordinator": "reachable"}
    assert any("queue" in reason for reason in health["reasons"])
