"""Shards as a program sees them: who leads which, and who is missing."""

import asyncio
from types import SimpleNamespace

import pytest

from duly import Scheduler, SchedulerConfig
from duly.rules.shards import shard_names
from duly.scheduler.health import _unled


async def until(check):
    async with asyncio.timeout(20):
        while not (found := await check()):  # noqa: ASYNC110  # the store says it, no event
            await asyncio.sleep(0.05)
    return found


def sharded(url="memory://", **settings):
    return Scheduler(url, SchedulerConfig(node_id="n", leader_ttl=1, lock_ttl=1, **settings))


async def test_health_names_the_leader_of_each_shard():
    scheduler = sharded(shards=3)
    async with scheduler:

        async def led():
            health = await scheduler.health()
            return health if len(health.led) == 3 else None

        health = await until(led)
        assert health.shards == dict.fromkeys(shard_names(3), "n")
        assert health.led == shard_names(3)
        assert (health.leader, health.is_leader, health.status) == ("n", True, "healthy")


async def test_health_says_nothing_of_shards_where_there_is_one():
    scheduler = sharded()
    async with scheduler:

        async def leads():
            health = await scheduler.health()
            return health if health.is_leader else None

        health = await until(leads)
        assert (health.shards, health.led, health.leader) == ({}, ("main",), "n")


@pytest.mark.parametrize(
    ("known", "unled", "reasons"),
    [
        (3, {"main/2": 2.5, "main/1": 1.0}, ["nobody leads main/2: its jobs are not planned"]),
        (3, {"main": 2.5}, ["nobody leads main: its jobs are not planned"]),
        (1, {"main": 2.5}, ["nobody leads: nothing is planned"]),
        (3, {}, []),
    ],
)
def test_shards_that_nobody_has_led_for_two_leases_are_reasons(known, unled, reasons):
    node = SimpleNamespace(elector=SimpleNamespace(leaderless_for=lambda: unled), layout=SimpleNamespace(known=known))
    running = SimpleNamespace(node=node, config=SchedulerConfig(leader_ttl=1))
    assert _unled(running, dict.fromkeys(shard_names(known))) == reasons
    assert _unled(running, dict.fromkeys(shard_names(known), "somebody")) == []
