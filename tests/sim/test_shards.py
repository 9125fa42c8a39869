"""Shards: planning is spread over scheduler nodes, and comes back within 1.5 leases when one of them is gone."""

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from duly import Every, Job, Scheduler
from duly.model import Node
from duly.model.event import LeaderElected, LeaderLost
from duly.rules.shards import shard_names, shard_of
from duly.scheduler.cluster_settings import ClusterSettings
from tests.sim.company import Company

TTL = 4.0
JOBS = [f"job{number}" for number in range(24)]


async def nothing() -> None: ...


def program(every=10):
    scheduler = Scheduler("memory://")
    for name in JOBS:
        scheduler.add(Job(name=name, handler=nothing, schedule=Every(seconds=every)))
    return scheduler


async def leaders(company, count):
    """The leader of each shard, by the coordinator."""
    coordinator = company.office.backend.coordinator
    leases = {shard: await coordinator.holder(shard) for shard in shard_names(count)}
    return {shard: lease and lease.holder for shard, lease in leases.items()}


async def spread(company, count, nodes):
    """Wait until that many nodes lead all shards, none more than its share."""

    async def done():
        found = await leaders(company, count)
        led = Counter(found.values())
        return found if None not in led and len(led) == nodes and max(led.values()) <= -(-count // nodes) else None

    return await company.until(done, f"{count} shards on {nodes} nodes", 120)


async def set_shards(company, count):
    """As `duly config set shards=…` does."""

    async def office():
        return company.office

    await ClusterSettings(office).set("shards", count)


async def homes(company):
    return {record.name: record.shard for record in await company.office.backend.store.jobs(JOBS)}


async def moved_home(company, count):
    async def done():
        found = await homes(company)
        return found and all(shard == shard_of(name, count) for name, shard in found.items())

    await company.until(done, f"all jobs in their shards of {count}", 120)


async def check_instants(company, since):
    """Every instant of every job since then has exactly one run."""
    now = company.clock.now()
    for name in JOBS:
        due = [run.due for run in await company.runs(name) if since < run.due < now - timedelta(seconds=1)]
        gaps = {(after - before).total_seconds() for before, after in pairwise(due)}
        assert gaps <= {10.0}, (name, gaps)
        assert len(due) >= (now - since).total_seconds() // 10 - 2, name


@pytest.mark.parametrize("seed", range(4))
def test_shards_are_spread_over_the_nodes_and_jobs_over_the_shards(seed):
    company = Company(seed)

    async def act():
        for name in ("a", "b", "c"):
            await company.start(name, program(), shards=6)
        await spread(company, 6, 3)
        await moved_home(company, 6)

    company.play(act())


@pytest.mark.parametrize("seed", range(6))
def test_the_shards_of_a_killed_node_are_led_again_within_one_and_a_half_leases(seed):
    company = Company(seed)

    async def act():
        settings = {"shards": 8, "lock_ttl": 12}  # the dead node counts for longer than its leases last
        members = {name: await company.start(name, program(), **settings) for name in ("a", "b", "c", "d")}
        await spread(company, 8, 4)
        await moved_home(company, 8)
        began = company.clock.now()
        victim = members["abcd"[seed % 4]]
        gone, killed = victim.running.node.id, company.loop.time()
        before = await leaders(company, 8)
        victim.node.kill()

        async def taken_over():
            return not {None, gone} & set((await leaders(company, 8)).values())

        await company.until(taken_over, "all shards are led", 60)
        assert company.loop.time() - killed <= 1.5 * TTL
        after = await leaders(company, 8)
        assert {shard for shard in after if after[shard] != before[shard]} == {
            shard for shard in before if before[shard] == gone
        }
        await asyncio.sleep(60)
        await check_instants(company, began)
        assert max(Counter((await leaders(company, 8)).values()).values()) <= 3

    company.play(act())


@pytest.mark.parametrize("seed", range(4))
def test_the_shards_of_a_killed_node_stay_with_those_who_took_them_over(seed):
    """A node that has died counts for a while: meanwhile nobody hands anything over to it."""
    company = Company(seed)

    async def act():
        members = [await company.start(name, program(), shards=8, lock_ttl=12) for name in ("a", "b", "c", "d")]
        await spread(company, 8, 4)
        victim = members.pop(seed)
        victim.node.kill()
        await asyncio.sleep(60)
        await spread(company, 8, 3)
        assert sum(len(member.events(LeaderLost)) for member in members) <= 6  # those of the first sharing out

    company.play(act())


@pytest.mark.parametrize("seed", range(4))
def test_a_new_node_gets_its_share_and_nothing_else_moves(seed):
    company = Company(seed)

    async def act():
        members = [await company.start(name, program(), shards=12) for name in ("a", "b", "c")]
        before = await spread(company, 12, 3)
        await asyncio.sleep(30)
        changes = [len(member.events(LeaderElected, LeaderLost)) for member in members]
        members.append(await company.start("d", program(), shards=12))
        after = await spread(company, 12, 4)
        moved = {shard for shard in after if after[shard] != before[shard]}
        assert {after[shard] for shard in moved} == {members[-1].running.node.id}
        assert len(moved) == 3
        await asyncio.sleep(120)
        assert await leaders(company, 12) == after
        assert [len(member.events(LeaderElected, LeaderLost)) for member in members] == [
            *(each + 1 for each in changes),
            3,
        ]

    company.play(act())


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_stops_hands_all_its_shards_over_at_once(seed):
    company = Company(seed)

    async def act():
        members = [await company.start(name, program(), shards=6) for name in ("a", "b", "c")]
        await spread(company, 6, 3)
        stopping = company.loop.time()
        await company.stop(members[seed])
        gone = members[seed].running.node.id

        async def taken_over():
            return not {None, gone} & set((await leaders(company, 6)).values())

        await company.until(taken_over, "all shards are led", 60)
        assert company.loop.time() - stopping < 2

    company.play(act())


@pytest.mark.parametrize("seed", range(4))
def test_a_frozen_leader_plans_nothing_when_it_wakes_up(seed):
    company = Company(seed)

    async def act():
        members = [await company.start(name, program(), shards=6) for name in ("a", "b", "c")]
        await spread(company, 6, 3)
        await moved_home(company, 6)
        began = company.clock.now()
        for number in range(6):
            frozen = members[(seed + number) % 3].node
            frozen.pause()
            await asyncio.sleep(company.rng.uniform(2, 20))
            frozen.resume()
            await asyncio.sleep(company.rng.uniform(1, 15))
        await asyncio.sleep(30)
        await check_instants(company, began)
        await spread(company, 6, 3)

    company.play(act())


@pytest.mark.parametrize(("first", "then"), [(1, 8), (8, 1), (4, 6), (6, 4)])
def test_another_number_of_shards_is_taken_over_without_a_stop(first, then):
    company = Company(first)

    async def act():
        for name in ("a", "b"):
            await company.start(name, program(), shards=first)
        await moved_home(company, first)
        began = company.clock.now()
        await asyncio.sleep(20)
        await set_shards(company, then)
        await moved_home(company, then)
        await asyncio.sleep(60)
        await check_instants(company, began)
        await spread(company, max(first, then), 2)

    company.play(act())


def test_nodes_that_are_configured_for_different_numbers_agree_on_the_highest():
    company = Company(3)

    async def act():
        await company.start("a", program())
        await company.start("b", program(), shards=4)
        began = company.clock.now()
        await spread(company, 4, 2)
        await moved_home(company, 4)
        await asyncio.sleep(60)
        await check_instants(company, began)
        assert (await leaders(company, 4)).keys() == set(shard_names(4))

    company.play(act())


def test_a_node_without_shards_plans_what_others_have_left_in_shards():
    company = Company(5)

    async def act():
        first = await company.start("a", program())
        other = await company.start("b", program(), shards=4)
        await moved_home(company, 4)
        began = company.clock.now()
        other.node.kill()
        await moved_home(company, 1)
        await asyncio.sleep(60)
        await check_instants(company, began)
        assert set((await leaders(company, 4)).values()) == {first.running.node.id}

    company.play(act())


def test_beside_a_node_of_0_1_0_all_jobs_are_planned_in_the_first_shard():
    """A node of 0.1.0 leads no other shard, and may be the last one that is left."""
    company = Company(6)

    async def act():
        for name in ("a", "b"):
            await company.start(name, program(), shards=4)
        await moved_home(company, 4)
        began = company.clock.now()
        coordinator = company.office.backend.coordinator
        old = Node("old", "elsewhere", 1, began, protocol=1)
        await coordinator.announce(old, 3600)
        await moved_home(company, 1)
        await asyncio.sleep(60)
        assert set((await homes(company)).values()) == {"main"}
        await coordinator.retire("old")
        await moved_home(company, 4)
        await check_instants(company, began)

    company.play(act())


def test_the_shards_of_a_cluster_survive_the_loss_of_its_settings():
    """The settings are the coordinator's. The store itself knows in which shards there are jobs."""
    company = Company(8)

    async def act():
        await company.start("a", program())
        await set_shards(company, 4)
        await moved_home(company, 4)
        began = company.clock.now()
        company.loop.nodes[-1].kill()
        company.contents.shared.clear()
        await company.start("b", program())
        await moved_home(company, 1)
        await asyncio.sleep(60)
        await check_instants(company, began)

    company.play(act())


def test_one_shard_costs_one_small_reading_every_half_minute():
    company = Company(9)

    async def act():
        await company.start("a", program())
        await asyncio.sleep(40)
        before = len(company.history.events)
        await asyncio.sleep(120)
        return Counter(getattr(event, "method", None) for event in company.history.events[before:])

    calls = company.play(act())
    assert calls["store.get"] == 4
    assert (calls["store.put"], calls["coordinator.holder"], calls["coordinator.acquire"]) == (0, 0, 0)
