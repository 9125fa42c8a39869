"""What every coordinator must do: leases, presence, shared values."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from duly.model import Lease, Node, Role
from duly.testing.conformance.world import World, part, scenario


def _node(world: World, name: str, started: float = 0.0) -> Node:
    return Node(id=name, host="h", pid=os.getpid(), started_at=world.after(started))


async def _acquired(world: World, holder: str, ttl: float = 10, name: str = "leader") -> Lease:
    lease = await world.coordinator.acquire(name, holder, ttl, now=world.now)
    assert lease is not None
    return lease


@part
class CoordinatorSuite:
    """Who holds which right, and who is alive."""

    @scenario
    async def test_a_lease_has_one_holder(self, world: World) -> None:
        lease = await _acquired(world, "a")
        assert (lease.name, lease.holder, lease.expires_at) == ("leader", "a", world.after(10))
        assert await world.coordinator.acquire("leader", "b", 10, now=world.now) is None
        assert await world.coordinator.holder("leader", now=world.now) == lease
        assert await world.coordinator.holder("other", now=world.now) is None
        assert (await _acquired(world, "b", name="other")).holder == "b"

    @scenario
    async def test_acquiring_again_extends_the_same_lease(self, world: World) -> None:
        lease = await _acquired(world, "a")
        world.advance(5)
        again = await _acquired(world, "a")
        assert (again.fence, again.expires_at) == (lease.fence, world.after(10))

    @scenario
    async def test_an_expired_lease_is_free_for_others_under_a_greater_fence(self, world: World) -> None:
        old = await _acquired(world, "a")
        world.advance(10)
        assert await world.coordinator.holder("leader", now=world.now) is None
        new = await _acquired(world, "b")
        assert new.fence > old.fence
        assert await world.coordinator.renew([old], 10, now=world.now) == [None]

    @scenario
    async def test_an_expired_lease_has_a_greater_fence_for_its_last_holder_too(self, world: World) -> None:
        old = await _acquired(world, "a")
        world.advance(10)
        assert (await _acquired(world, "a")).fence > old.fence

    @scenario
    async def test_fences_grow_over_releases(self, world: World) -> None:
        fences = []
        for holder in ("a", "b", "a", "a"):
            lease = await _acquired(world, holder)
            fences.append(lease.fence)
            await world.coordinator.release([lease])
        assert fences == sorted(set(fences))

    @scenario
    async def test_renewal_extends_what_is_still_held(self, world: World) -> None:
        lease = await _acquired(world, "a")
        other = await _acquired(world, "a", name="other")
        await world.coordinator.release([other])
        world.advance(8)
        renewed, lost = await world.coordinator.renew([lease, other], 10, now=world.now)
        assert renewed is not None
        assert (renewed.fence, renewed.expires_at) == (lease.fence, world.after(10))
        assert lost is None

    @scenario
    async def test_an_expired_lease_that_nobody_took_is_renewed(self, world: World) -> None:
        lease = await _acquired(world, "a")
        world.advance(60)
        [renewed] = await world.coordinator.renew([lease], 10, now=world.now)
        assert renewed is not None
        assert await world.coordinator.acquire("leader", "b", 10, now=world.now) is None

    @scenario
    async def test_releasing_frees_at_once_and_only_ones_own(self, world: World) -> None:
        old = await _acquired(world, "a")
        world.advance(10)
        new = await _acquired(world, "b")
        await world.coordinator.release([old])
        assert await world.coordinator.holder("leader", now=world.now) == new
        await world.coordinator.release([new])
        await world.coordinator.release([new])
        assert await world.coordinator.holder("leader", now=world.now) is None

    @scenario
    async def test_nodes_are_known_while_they_announce_themselves(self, world: World) -> None:
        young, old = _node(world, "young"), _node(world, "old", started=-60)
        for node in (young, old):
            await world.coordinator.announce(node, 10, now=world.now)
        assert [node.id for node in await world.coordinator.nodes(now=world.now)] == ["old", "young"]
        world.advance(6)
        assert await world.coordinator.beat("young", 10, now=world.now)
        world.advance(6)
        assert [node.id for node in await world.coordinator.nodes(now=world.now)] == ["young"]
        assert not await world.coordinator.beat("old", 10, now=world.now)
        assert not await world.coordinator.beat("nobody", 10, now=world.now)

    @scenario
    async def test_a_node_is_known_as_it_announced_itself(self, world: World) -> None:
        node = Node(
            id="worker-1",
            host="h1",
            pid=42,
            started_at=world.now + timedelta(microseconds=7),
            roles=(Role.WORKER,),
            queues=("mail", "sms"),
            handlers=frozenset({"a", "b"}),
            labels={"gpu": "yes"},
            capacity=10,
            version="1.2.3",
            metrics={"running": 2.0},
        )
        await world.coordinator.announce(node, 10, now=world.now)
        assert await world.coordinator.nodes(now=world.now) == [node]
        await world.coordinator.beat("worker-1", 10, {"running": 3.0}, now=world.now)
        [known] = await world.coordinator.nodes(now=world.now)
        assert known.metrics == {"running": 3.0}

    @scenario
    async def test_another_process_of_the_same_id_is_told_apart(self, world: World) -> None:
        first, second = _node(world, "twin", started=-60), _node(world, "twin", started=-1)
        beat = world.coordinator.beat
        await world.coordinator.announce(first, 10, now=world.now)
        assert await beat("twin", 10, started_at=first.started_at, now=world.now)
        assert not await beat("twin", 10, started_at=second.started_at, now=world.now)
        await world.coordinator.announce(second, 10, now=world.now)
        assert not await beat("twin", 10, {"running": 7.0}, started_at=first.started_at, now=world.now)
        assert await beat("twin", 10, {"running": 1.0}, started_at=second.started_at, now=world.now)
        [known] = await world.coordinator.nodes(now=world.now)
        assert (known.started_at, known.metrics) == (second.started_at, {"running": 1.0})

    @scenario
    async def test_a_retired_node_is_gone(self, world: World) -> None:
        await world.coordinator.announce(_node(world, "a"), 10, now=world.now)
        await world.coordinator.retire("a")
        await world.coordinator.retire("nobody")
        assert await world.coordinator.nodes(now=world.now) == []

    @scenario
    async def test_shared_values_are_compared_and_set(self, world: World) -> None:
        assert await world.coordinator.get("config") is None
        assert await world.coordinator.put("config", b"x", expect=3) is None
        first = await world.coordinator.put("config", b"1", expect=0)
        assert first is not None
        assert await world.coordinator.put("config", b"2", expect=0) is None
        second = await world.coordinator.put("config", b"2", expect=first.version)
        assert second is not None
        assert second.version > first.version
        assert await world.coordinator.get("config") == second
        assert await world.coordinator.put("config", b"3") is not None

    @scenario
    async def test_watching_shows_the_present_and_what_follows(self, world: World) -> None:
        await world.coordinator.put("config", b"1")
        async with asyncio.timeout(30):
            watch = world.coordinator.watch("config")
            assert (await anext(watch)).value == b"1"
            await world.coordinator.put("config", b"2")
            assert (await anext(watch)).value == b"2"
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            await world.coordinator.put("config", b"3")
            assert (await waiting).value == b"3"
