"""What every queue must do with runs that belong to a group."""

from __future__ import annotations

from msgspec.structs import replace

from duly.model import Assignment, Beat, BeatReply, Cancelled, Run, State, WhenFull
from duly.model.holds import UNPLACED
from duly.testing.conformance.world import LEASE, World, failed, part, scenario


async def in_line(world: World, assignee: str | None = None) -> tuple[Run, Run]:
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


def _behind(world: World, number: int) -> Run:
    """The n-th run that waits for a group with one place."""
    return world.run(group="g", when_full=WhenFull.QUEUE, delay=number)


@part
class GroupSuite:
    """Groups: how many runs may be unfinished together, and what happens to a run that finds its group full."""

    @scenario
    async def test_a_full_group_skips(self, world: World) -> None:
        running, late = (world.run(group="g", delay=n) for n in (0, 5))
        await world.put(running, late)
        [claim] = await world.claim()
        world.advance(5)
        assert await world.claim() == []
        stored = await world.stored(late)
        assert (stored.state, stored.reason, stored.finished_at) == (State.SKIPPED, "overlap", world.now)
        await world.settle(claim)
        await world.put(after := world.run(group="g"))
        assert [claim.run.id for claim in await world.claim()] == [after.id]

    @scenario
    async def test_promote_alone_applies_the_overlap(self, world: World) -> None:
        await world.put(world.run(group="g"), late := world.run(group="g", delay=5))
        await world.claim()
        world.advance(5)
        await world.queue.promote(100, now=world.now)
        world.advance(1)
        assert await world.state(late) is State.SKIPPED

    @scenario
    async def test_a_group_has_as_many_places_as_its_limit(self, world: World) -> None:
        await world.put(*[world.run(group="g", limit=2) for _ in range(3)])
        assert len(await world.claim()) == 2

    @scenario
    async def test_a_run_waiting_for_its_retry_still_counts(self, world: World) -> None:
        await world.put(world.run(group="g"))
        [claim] = await world.claim()
        await world.settle(claim, failed())
        await world.put(late := world.run(group="g"))
        assert await world.claim() == []
        assert await world.state(late) is State.SKIPPED
        world.advance(1)
        assert [again.run.id for again in await world.claim()] == [claim.run.id]

    @scenario
    async def test_a_full_group_queues(self, world: World) -> None:
        runs = [world.run(group="g", when_full=WhenFull.QUEUE, delay=n) for n in range(3)]
        await world.put(*runs)
        world.advance(3)
        order: list[str] = []
        for _ in range(3):
            [claim] = await world.claim()
            order.append(claim.run.id)
            await world.settle(claim)
        assert order == [run.id for run in runs]
        assert await world.queue.holds() == {}

    @scenario
    async def test_runs_queued_behind_a_group_are_held_visibly(self, world: World) -> None:
        await world.put(world.run(group="g", when_full=WhenFull.QUEUE))
        await world.claim()
        await world.put(*[world.run(group="g", when_full=WhenFull.QUEUE) for _ in range(2)])
        assert await world.claim() == []
        assert await world.queue.holds() == {"group:g": 2}

    @scenario
    async def test_the_most_urgent_of_a_group_goes_first(self, world: World) -> None:
        await world.put(world.run(group="g", when_full=WhenFull.QUEUE))
        [claim] = await world.claim()
        later = world.run(group="g", when_full=WhenFull.QUEUE, delay=-5)
        urgent = world.run(group="g", when_full=WhenFull.QUEUE, priority=5)
        await world.put(later, urgent)
        assert await world.claim() == []
        await world.settle(claim)
        assert [claim.run.id for claim in await world.claim()] == [urgent.id]

    @scenario
    async def test_a_cancelled_member_frees_its_place(self, world: World) -> None:
        await world.put(first := world.run(group="g", when_full=WhenFull.QUEUE))
        await world.queue.promote(10, now=world.now)
        await world.put(second := world.run(group="g", when_full=WhenFull.QUEUE))
        await world.queue.promote(10, now=world.now)
        await world.store.cancel([first.id], now=world.now)
        assert [claim.run.id for claim in await world.claim()] == [second.id]

    @scenario
    async def test_a_full_group_is_replaced(self, world: World) -> None:
        old, held, new = (world.run(group="g", when_full=WhenFull.REPLACE, delay=n) for n in (0, 5, 6))
        await world.put(old, held, new)
        [claim] = await world.claim()
        world.advance(5)
        assert await world.claim() == []
        renewal = await world.queue.renew([Beat(old.id, claim.fence)], LEASE, now=world.now)
        assert renewal.replies == (BeatReply.CANCEL,)
        world.advance(1)
        assert await world.claim() == []
        stored = await world.stored(held)
        assert (stored.state, stored.reason) == (State.SKIPPED, "replaced")
        await world.settle(claim, Cancelled())
        assert await world.state(old) is State.CANCELLED
        assert [claim.run.id for claim in await world.claim()] == [new.id]

    @scenario
    async def test_a_waiting_member_is_replaced_at_once(self, world: World) -> None:
        old, new = (world.run(group="g", when_full=WhenFull.REPLACE) for _ in range(2))
        await world.put(old)
        await world.queue.promote(10, now=world.now)
        await world.put(new)
        assert [claim.run.id for claim in await world.claim()] == [new.id]
        stored = await world.stored(old)
        assert (stored.state, stored.reason) == (State.CANCELLED, "replaced")

    @scenario
    async def test_groups_do_not_mind_each_other(self, world: World) -> None:
        await world.put(*[world.run(group=f"g{number}") for number in range(20)], world.run())
        assert len(await world.claim()) == 21

    # --- operators

    @scenario
    async def test_a_redriven_run_asks_its_group_again(self, world: World) -> None:
        await world.put(first := world.run(group="g", when_full=WhenFull.QUEUE))
        await world.store.cancel([first.id], now=world.now)
        await world.put(second := world.run(group="g", when_full=WhenFull.QUEUE))
        [claim] = await world.claim()
        assert claim.run.id == second.id
        await world.store.redrive([first.id], now=world.now)
        assert await world.claim() == []
        await world.settle(claim)
        assert [claim.run.id for claim in await world.claim()] == [first.id]

    # --- a place that is offered and not taken goes to the next in line

    @scenario
    async def test_the_next_in_line_follows_one_that_was_cancelled(self, world: World) -> None:
        first, second = await in_line(world)
        await world.store.cancel([first.id], now=world.now)
        assert [claim.run.id for claim in await world.claim()] == [second.id]

    @scenario
    async def test_the_next_in_line_follows_one_whose_job_was_removed(self, world: World) -> None:
        await world.create(record := world.record("mail", every=None))
        first, second = await in_line(world)
        other = replace(second, id=world.ids.new(), job="sms", handler="sms")
        await world.put(other)
        await world.queue.promote(100, now=world.now)
        assert await world.store.remove("mail", record.revision, now=world.now)
        assert first.job == "mail"
        assert [claim.run.id for claim in await world.claim()] == [other.id]
