"""What every queue must do with runs that come too late to enter their group: `Run.start_by`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duly.model import Cause, Interrupted, Missed, Outcome, Run, State, WhenFull
from duly.testing.conformance.world import World, failed, part, scenario

_JOB = "report"


def _late(world: World, *late: float, grace: float = 60.0, **fields: Any) -> list[Run]:
    """Planned runs of one job, that many seconds late; each may start until the next one is as late as `grace`."""
    following = [*late[1:], None]
    return [
        world.run(
            _JOB,
            delay=-each,
            cause=Cause.SCHEDULE,
            group=_JOB,
            start_by=None if after is None else world.after(grace - after),
            **fields,
        )
        for each, after in zip(late, following, strict=True)
    ]


async def _states(world: World, runs: list[Run]) -> list[tuple[State, str | None]]:
    found = [await world.store.run(run.id) for run in runs]
    return [(run.state, run.reason) for run in found if run is not None]


async def _start_by(world: World, run: Run) -> datetime | None:
    found = await world.store.run(run.id)
    assert found is not None
    return found.start_by


@part
class MisfireSuite:
    """Runs before their groups, in the line of a group, and those that wait again."""

    @scenario
    async def test_of_missed_instants_the_latest_enters_the_group(self, world: World) -> None:
        runs = _late(world, 300, 200, 100)
        await world.put(*runs)
        [claim] = await world.claim(10)
        assert claim.run.id == runs[2].id
        assert await _states(world, runs) == [
            (State.SKIPPED, "misfire"),
            (State.SKIPPED, "misfire"),
            (State.RUNNING, None),
        ]

    @scenario
    async def test_promotion_decides_alike(self, world: World) -> None:
        runs = _late(world, 300, 200, 100)
        await world.put(*runs)
        await world.queue.promote(10, now=world.now)
        assert await _states(world, runs) == [
            (State.SKIPPED, "misfire"),
            (State.SKIPPED, "misfire"),
            (State.QUEUED, None),
        ]

    @scenario
    async def test_a_run_alone_before_its_group_is_missed_all_the_same(self, world: World) -> None:
        run, _ = _late(world, 300, 200)
        await world.put(run)
        assert await world.claim(10) == []
        assert await _states(world, [run]) == [(State.SKIPPED, "misfire")]

    @scenario
    async def test_instants_within_the_grace_are_a_matter_of_overlap(self, world: World) -> None:
        runs = _late(world, 50, 40, 30)
        await world.put(*runs)
        assert [claim.run.id for claim in await world.claim(10)] == [runs[0].id]
        assert await _states(world, runs[1:]) == [(State.SKIPPED, "overlap")] * 2

    @scenario
    async def test_a_run_that_is_hardly_late_is_never_missed(self, world: World) -> None:
        run = world.run(_JOB, delay=-0.5, group=_JOB, start_by=world.after(-0.4), strict=True)
        await world.put(run)
        assert len(await world.claim(10)) == 1

    @scenario
    async def test_a_run_in_no_group_is_left_to_the_worker(self, world: World) -> None:
        run = world.run(delay=-300, start_by=world.after(-200), strict=True)
        await world.put(run)
        [claim] = await world.claim(10)
        assert (claim.run.start_by, claim.run.strict) == (run.start_by, True)

    @scenario
    async def test_a_member_that_waits_in_its_queue_is_left_to_the_worker(self, world: World) -> None:
        run = world.run(_JOB, group=_JOB, start_by=world.after(60))
        await world.put(run)
        await world.queue.promote(10, now=world.now)
        world.advance(100)
        [claim] = await world.claim(10)
        assert claim.run.start_by == run.start_by

    @scenario
    async def test_waiting_for_the_group_excuses(self, world: World) -> None:
        first, second = (
            world.run(
                _JOB, delay=delay, group=_JOB, when_full=WhenFull.QUEUE, start_by=world.after(delay + 60), strict=True
            )
            for delay in (0, 1)
        )
        await world.put(first, second)
        [claim] = await world.claim(10)
        world.advance(1)
        await world.queue.promote(10, now=world.now)
        assert await _start_by(world, second) is None
        world.advance(500)
        await world.settle(claim)
        [claim] = await world.claim(10)
        assert (claim.run.id, claim.run.start_by, claim.run.strict) == (second.id, None, True)

    @scenario
    async def test_a_missed_run_gives_way_in_its_group_and_keeps_its_reason(self, world: World) -> None:
        run = world.run(_JOB, delay=-300, start_by=world.after(-200), strict=True, dedupe_key="k")
        await world.put(run)
        [claim] = await world.claim(10)
        before = await world.store.counts(now=world.now)
        assert await world.settle(claim, Missed())
        assert await _states(world, [run]) == [(State.SKIPPED, "misfire")]
        after = await world.store.counts(now=world.now)
        assert after.states[State.SKIPPED] == before.states[State.SKIPPED] + 1
        assert after.states[State.RUNNING] == before.states[State.RUNNING] - 1
        assert await world.store.attempts(run.id) == []
        again = world.run(_JOB, dedupe_key="k")
        assert [put.created for put in await world.queue.put([again], now=world.now)] == [True]

    @scenario
    async def test_a_member_that_is_missed_leaves_its_place(self, world: World) -> None:
        first, second = (world.run(_JOB, delay=delay, group=_JOB, when_full=WhenFull.QUEUE) for delay in (0, 1))
        await world.put(first, second)
        [claim] = await world.claim(10)
        world.advance(5)
        await world.queue.promote(10, now=world.now)
        assert await world.settle(claim, Missed())
        assert [each.run.id for each in await world.claim(10)] == [second.id]

    @scenario
    async def test_an_attempt_that_began_excuses_what_follows(self, world: World) -> None:
        outcomes: tuple[Outcome, ...] = (failed(delay=1.0), Interrupted(), Interrupted(began=False))
        runs = [world.run(f"{_JOB}{n}", start_by=world.after(60), strict=True) for n in range(len(outcomes))]
        await world.put(*runs)
        claims = {claim.run.id: claim for claim in await world.claim(10)}
        for run, outcome in zip(runs, outcomes, strict=True):
            assert await world.settle(claims[run.id], outcome)
        assert [await _start_by(world, run) for run in runs] == [None, None, runs[2].start_by]

    @scenario
    async def test_a_redriven_run_is_excused(self, world: World) -> None:
        run = world.run(start_by=world.after(60), strict=True)
        await world.put(run)
        await world.store.cancel([run.id], None, now=world.now)
        assert await _start_by(world, run) == run.start_by
        await world.store.redrive([run.id], now=world.now)
        assert await _start_by(world, run) is None

    @scenario
    async def test_a_run_that_is_held_and_replaced_in_one_step_was_held_all_the_same(self, world: World) -> None:
        first = world.run(group="g", when_full=WhenFull.QUEUE, delay=-3)
        second = world.run(group="g", when_full=WhenFull.QUEUE, delay=-2, start_by=world.after(5))
        third = world.run(group="g", when_full=WhenFull.REPLACE, delay=-1)
        await world.put(first, second, third)
        [claim] = await world.claim()
        assert claim.run.id == third.id
        stored = await world.stored(second)
        assert (stored.state, stored.reason, stored.start_by) == (State.SKIPPED, "replaced", None)
