"""Corners: short scenarios for what only rare orders of calls bring up. Fuzz and machine found or would find each."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from duly.model import Assignment, CustomSpec, EverySpec, JobChange, JobRecord, JobSpec, Run, WhenFull
from duly.model.holds import UNPLACED
from duly.testing.conformance.world import LEASE, World, scenario


def _behind(world: World, number: int) -> Run:
    """The n-th run in line for a group with one place."""
    return world.run(group="g", when_full=WhenFull.QUEUE, delay=number)


async def _in_line(world: World, assignee: str | None = None) -> tuple[Run, Run]:
    """A group whose only member has just ended, the first of two held runs let in but not yet queued."""
    running, first, second = runs = [_behind(world, number) for number in range(3)]
    if assignee is None:
        await world.put(*runs)
    else:
        await world.put(*[replace(run, hold=UNPLACED, assignable=True) for run in runs])
        assert all(await world.queue.assign([Assignment(run.id, assignee) for run in runs]))
    world.advance(5)
    [claim] = await world.claim(node=assignee or "node-1")
    assert claim.run.id == running.id
    assert await world.queue.holds() == {"group:g": 2}
    assert await world.settle(claim)
    assert await world.queue.holds() == {"group:g": 1}
    return first, second


class CornerSuite:
    """Races between two calls that each look harmless."""

    # --- repeated claims

    @scenario
    async def test_a_repeated_request_does_not_hand_out_the_reapers_fence(self, world: World) -> None:
        await world.put(world.run())
        [claim] = await world.claim(node="paused", request=7)
        world.advance(LEASE)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        assert taken.fence > claim.fence
        assert await world.claim(node="paused", request=7) == []

    @scenario
    async def test_an_older_request_still_returns_what_it_lent(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(3)])
        [first] = await world.claim(1, request=1)
        await world.claim(1, request=2)
        again = await world.claim(5, request=1)
        assert [(claim.run.id, claim.fence) for claim in again] == [(first.run.id, first.fence)]

    # --- planning

    @scenario
    async def test_a_job_with_another_kind_of_schedule_is_due_in_its_new_shard_only(self, world: World) -> None:
        await world.create(record := world.record("moon"))
        custom = replace(record, revision=2, spec=replace(record.spec, schedule=CustomSpec("tides.Moon")))
        await world.store.save([JobChange(custom, 1)], now=world.now)
        assert await _due(world, "main") == []
        assert await _due(world, "job:moon") == ["moon"]
        plain = replace(record, revision=3, spec=_plain("moon"))
        await world.store.save([JobChange(plain, 2)], now=world.now)
        assert await _due(world, "main") == ["moon"]
        assert await _due(world, "job:moon") == []

    # --- groups: a place that is offered and not taken goes to the next in line

    @scenario
    async def test_the_next_in_line_follows_one_that_was_cancelled(self, world: World) -> None:
        first, second = await _in_line(world)
        await world.store.cancel([first.id], now=world.now)
        assert [claim.run.id for claim in await world.claim()] == [second.id]

    @scenario
    async def test_the_next_in_line_follows_one_that_was_held_for_something_else(self, world: World) -> None:
        first, second = await _in_line(world, assignee="a")
        assert await world.queue.unassign("a", 10) == 1
        assert (await world.stored(first)).hold == UNPLACED
        assert [claim.run.id for claim in await world.claim(node="a")] == [second.id]

    @scenario
    async def test_the_next_in_line_follows_one_whose_job_was_removed(self, world: World) -> None:
        await world.create(record := _unscheduled(world, "mail"))
        first, second = await _in_line(world)
        other = replace(second, id=world.ids.new(), job="sms", handler="sms")
        await world.put(other)
        await world.queue.promote(100, now=world.now)
        assert await world.store.remove("mail", record.revision, now=world.now)
        assert first.job == "mail"
        assert [claim.run.id for claim in await world.claim()] == [other.id]


async def _due(world: World, shard: str) -> list[str]:
    records, _ = await world.store.due(shard, 10, now=world.now)
    return [record.name for record in records]


def _plain(name: str) -> JobSpec:
    return JobSpec(name=name, handler=name, schedule=EverySpec(timedelta(seconds=10)))


def _unscheduled(world: World, name: str) -> JobRecord:
    return world.record(name, every=None)
