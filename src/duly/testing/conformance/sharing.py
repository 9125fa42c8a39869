"""What every queue must do when scheduled and other runs of one priority wait together: a quarter is scheduled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from duly.model import Assignment, Cause, Claim, JobChange, Pause, RetrySpec, Run, RunPolicy, WhenFull
from duly.model.holds import UNPLACED
from duly.testing.conformance.world import World, failed, part, scenario

_NO_RETRY = RunPolicy(retry=RetrySpec(max_retries=0))


def _backlog(world: World, number: int = 40, **fields: Any) -> list[Run]:
    """Submitted runs that have waited for longer than any scheduled one."""
    return [world.run(delay=place - 1000, **fields) for place in range(number)]


def _scheduled(world: World, number: int = 20, job: str = "report", **fields: Any) -> list[Run]:
    """Runs of a schedule that have become ready just now."""
    return [world.run(job, cause=Cause.SCHEDULE, delay=place - 100, **fields) for place in range(number)]


def _ids(claims: Sequence[Claim], *, scheduled: bool) -> list[str]:
    return [claim.run.id for claim in claims if (claim.run.cause is Cause.SCHEDULE) is scheduled]


@part
class SharingSuite:
    """Shares of one claim, from one claim to the next, and beside priorities, groups, holds and nodes."""

    @scenario
    async def test_scheduled_runs_have_a_quarter_of_a_claim_behind_a_backlog(self, world: World) -> None:
        submitted, scheduled = _backlog(world), _scheduled(world)
        await world.put(*submitted, *scheduled)
        left = [[run.id for run in scheduled], [run.id for run in submitted]]
        for room, share in [(8, 2), (4, 1), (10, 3), (5, 2)]:
            claims = await world.claim(room)
            assert len(claims) == room
            for ids, number, kind in zip(left, (share, room - share), (True, False), strict=True):
                assert _ids(claims, scheduled=kind) == ids[:number]
                del ids[:number]

    @scenario
    async def test_few_places_are_shared_from_claim_to_claim(self, world: World) -> None:
        for room in (1, 2, 3):
            await world.put(*_backlog(world), *_scheduled(world))
            lent = [await world.claim(room, request=100 * room + number) for number in range(8)]
            assert all(len(claims) == room for claims in lent)
            assert sum(len(_ids(claims, scheduled=True)) for claims in lent) == 2 * room
            await world.claim(1000)

    @scenario
    async def test_order_decides_beyond_the_share(self, world: World) -> None:
        early = _scheduled(world, 6)
        late = [world.run(delay=number - 50) for number in range(20)]
        await world.put(*late, *early)
        claims = await world.claim(8)
        assert _ids(claims, scheduled=True) == [run.id for run in early]
        assert _ids(claims, scheduled=False) == [run.id for run in late[:2]]

    @scenario
    async def test_without_enough_scheduled_runs_the_others_fill_the_claim(self, world: World) -> None:
        await world.put(*_backlog(world, 20), *_scheduled(world, 1))
        claims = await world.claim(12)
        assert (len(_ids(claims, scheduled=True)), len(_ids(claims, scheduled=False))) == (1, 11)
        assert len(await world.claim(12)) == 9

    @scenario
    async def test_higher_priorities_go_first(self, world: World) -> None:
        urgent, submitted, scheduled = _backlog(world, 5, priority=5), _backlog(world), _scheduled(world)
        high = _scheduled(world, 2, priority=9)
        await world.put(*submitted, *scheduled, *urgent, *high)
        claims = await world.claim(15)
        first = [claim.run.id for claim in claims if claim.run.priority]
        assert first == [run.id for run in [*high, *urgent]]
        assert _ids(claims[7:], scheduled=True) == [run.id for run in scheduled[:2]]
        assert _ids(claims[7:], scheduled=False) == [run.id for run in submitted[:6]]

    @scenario
    async def test_a_triggered_run_is_no_scheduled_one(self, world: World) -> None:
        triggered = [world.run("report", cause=Cause.TRIGGER, delay=-100) for _ in range(5)]
        await world.put(*_backlog(world), *triggered)
        claims = await world.claim(8)
        assert {claim.run.cause for claim in claims} == {Cause.SUBMIT}

    @scenario
    async def test_queues_share_as_if_they_were_one(self, world: World) -> None:
        submitted = [*_backlog(world, 20, queue="fast"), *_backlog(world, 20, queue="slow")]
        scheduled = [*_scheduled(world, 3, queue="other"), *_scheduled(world, 3, queue="fast")]
        await world.put(*submitted, *scheduled)
        claims = await world.claim(16)
        assert {claim.run.id for claim in claims if claim.run.cause is Cause.SCHEDULE} == {
            run.id for run in sorted(scheduled, key=lambda run: (run.ready_at, run.id))[:4]
        }
        assert _ids(await world.claim(8, queues=["slow"]), scheduled=True) == []

    @scenario
    async def test_a_run_is_scheduled_in_every_station_of_its_life(self, world: World) -> None:
        """Put early, held and put back, tried again, redriven: it has its share each time."""
        early = world.run("report", cause=Cause.SCHEDULE, delay=5)
        held, retried = _scheduled(world, 2, policy=RunPolicy(retry=RetrySpec(max_retries=1, initial_interval=1.0)))
        again = world.run("report", cause=Cause.SCHEDULE, policy=_NO_RETRY)
        await world.put(replace(held, hold="breaker:x"), retried, again)
        for claim in await world.claim():
            await world.settle(claim, failed())
        await world.put(*_backlog(world), early)
        world.advance(10)
        assert await world.queue.unhold("breaker:x", 5) == 1
        await world.store.redrive([again.id], now=world.now)
        claims = await world.claim(16)
        assert set(_ids(claims, scheduled=True)) == {held.id, retried.id, early.id, again.id}

    @scenario
    async def test_members_of_groups_have_their_share(self, world: World) -> None:
        scheduled = [run for n in range(6) for run in _scheduled(world, 2, f"job{n}", group=f"job{n}")]
        await world.put(*_backlog(world), *scheduled)
        claims = await world.claim(12)
        assert len(_ids(claims, scheduled=True)) == 3
        assert len({claim.run.group for claim in claims if claim.run.cause is Cause.SCHEDULE}) == 3
        queued = [world.run("slow", cause=Cause.SCHEDULE, group="g", when_full=WhenFull.QUEUE) for _ in range(3)]
        await world.put(*queued)
        assert len(await world.claim(12)) == 12

    @scenario
    async def test_what_may_not_start_takes_nobodys_share(self, world: World) -> None:
        record = world.record("paused", every=None)
        await world.create(record)
        paused = replace(record, revision=2, paused=Pause(world.now))
        await world.store.save([JobChange(paused, 1)], now=world.now)
        stuck = [*_backlog(world, 10, job="paused"), *_scheduled(world, 10, "paused")]
        await world.put(*stuck, *_backlog(world), *_scheduled(world))
        claims = await world.claim(8)
        assert (len(_ids(claims, scheduled=True)), len(_ids(claims, scheduled=False))) == (2, 6)
        assert {claim.run.job for claim in claims} == {"mail", "report"}

    @scenario
    async def test_what_is_assigned_to_a_node_shares_too(self, world: World) -> None:
        own = [replace(run, assignable=True, hold=UNPLACED) for run in _scheduled(world, 4)]
        await world.put(*_backlog(world), *own)
        await world.queue.assign([Assignment(run.id, "a") for run in own])
        assert _ids(await world.claim(8, node="b"), scheduled=True) == []
        assert len(_ids(await world.claim(8, node="a"), scheduled=True)) == 2
