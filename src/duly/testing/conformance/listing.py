"""What every store must do to list and count runs."""

from __future__ import annotations

import pytest

from duly.errors import ConfigurationError
from duly.model import Cancelled, CancelReply, Outcome, RunQuery, State, Succeeded
from duly.testing.conformance.world import World, failed, part, scenario, to_place


@part
class ListingSuite:
    """Lists and counts of runs."""

    # --- pages

    @scenario
    async def test_runs_are_listed_newest_first_in_pages(self, world: World) -> None:
        runs = []
        for _ in range(7):
            await world.put(run := world.run())
            runs.append(run)
            world.advance(1)
        seen: list[str] = []
        cursor = None
        while True:
            page = await world.store.runs(RunQuery(), 3, cursor, now=world.now)
            seen += [run.id for run in page.runs]
            cursor = page.next
            if cursor is None:
                break
        assert seen == [run.id for run in reversed(runs)]

    @scenario
    async def test_a_cursor_that_no_page_gave_is_refused(self, world: World) -> None:
        await world.put(world.run())
        for cursor in ("", "x", "-1", " 1", "9" * 40, "1\x00", "\ud800", "٣"):
            with pytest.raises(ConfigurationError, match="cursor="):
                await world.store.runs(RunQuery(), 3, cursor, now=world.now)

    @scenario
    async def test_runs_put_together_are_listed_once_each(self, world: World) -> None:
        runs = [world.run() for _ in range(10)]
        await world.put(*runs)
        first = await world.store.runs(RunQuery(), 6, now=world.now)
        rest = await world.store.runs(RunQuery(), 6, first.next, now=world.now)
        assert {run.id for run in first.runs + rest.runs} == {run.id for run in runs}
        assert len(rest.runs) == 4
        assert rest.next is None

    @scenario
    async def test_a_wish_to_cancel_is_over_when_the_run_has_ended(self, world: World) -> None:
        runs = [world.run() for _ in range(3)]
        await world.put(*runs)
        claims = await world.claim()
        for run in runs:
            assert await world.store.cancel([run.id], now=world.now) == [CancelReply.REQUESTED]
            assert (await world.stored(run)).cancelling
        outcomes: list[Outcome] = [Cancelled(), Succeeded(), failed()]
        for claim, outcome in zip(claims, outcomes, strict=True):
            assert await world.settle(claim, outcome)
        for run in runs:
            stored = await world.stored(run)
            assert (stored.final, stored.cancelling) == (True, False)
        page = await world.store.runs(RunQuery(), 10, now=world.now)
        assert not any(run.cancelling for run in page.runs)

    # --- upcoming runs

    @scenario
    async def test_upcoming_runs_are_listed_by_time(self, world: World) -> None:
        await world.put(late := world.run(delay=60), soon := world.run("sms", delay=5), now := world.run())
        await world.put(world.run(delay=1, hold="k"))
        assert [run.id for run in await world.store.upcoming(10, now=world.now)] == [now.id, soon.id, late.id]
        assert [run.id for run in await world.store.upcoming(1, now=world.now)] == [now.id]
        assert [run.id for run in await world.store.upcoming(10, "sms", now=world.now)] == [soon.id]
        assert await world.store.next_runs(now=world.now) == {"mail": now.ready_at, "sms": soon.ready_at}
        assert await world.store.next_runs(["sms", "nobody"], now=world.now) == {"sms": soon.ready_at}
        assert await world.store.next_runs([], now=world.now) == {}

    @scenario
    async def test_the_next_run_of_a_job_is_one_that_waits(self, world: World) -> None:
        runs = [world.run(delay=delay) for delay in (0, 10, 20)]
        await world.put(*runs)
        [claim] = await world.claim(limit=1)
        assert await world.store.next_runs(["mail"], now=world.now) == {"mail": runs[1].ready_at}
        await world.settle(claim, failed())
        stored = await world.stored(runs[0])
        assert await world.store.next_runs(["mail"], now=world.now) == {"mail": min(stored.ready_at, runs[1].ready_at)}
        await world.store.cancel([run.id for run in runs], now=world.now)
        assert await world.store.next_runs(["mail"], now=world.now) == {}

    @scenario
    async def test_runs_to_be_placed_are_upcoming_and_other_held_ones_are_not(self, world: World) -> None:
        later, sooner, held = to_place(world, delay=20), to_place(world, delay=10), world.run(delay=5, hold="breaker:x")
        await world.put(later, sooner, held)
        assert [run.id for run in await world.store.upcoming(10, now=world.now)] == [sooner.id, later.id]
        assert [run.id for run in await world.store.upcoming(1, "mail", now=world.now)] == [sooner.id]
        assert await world.store.next_runs(now=world.now) == {"mail": sooner.ready_at}
        assert await world.store.next_runs(["mail"], now=world.now) == {"mail": sooner.ready_at}

    # --- counts

    @scenario
    async def test_counts_tell_states_and_queues(self, world: World) -> None:
        await world.put(
            world.run(queue="a", priority=9),
            world.run(queue="a", priority=9),
            oldest := world.run(queue="a", delay=-30),
            world.run(queue="a"),
            world.run(queue="b", delay=60),
            world.run(queue="b", hold="k"),
        )
        first, second = await world.claim(2)
        await world.settle(first)
        await world.store.pause("b")
        counts = await world.store.counts(now=world.now)
        assert counts.states[State.COMPLETED] == 1
        assert counts.states[State.RUNNING] == 1
        assert counts.states[State.QUEUED] == 2
        assert counts.states[State.FAILED] == 0
        a, b = counts.queues["a"], counts.queues["b"]
        assert (a.queued, a.running, a.pending, a.oldest, a.paused) == (2, 1, 0, oldest.ready_at, False)
        assert (b.queued, b.running, b.pending, b.paused) == (0, 0, 2, True)
        await world.settle(second)
        await world.store.purge(State.COMPLETED, world.after(1), None, 10)
        assert (await world.store.counts(now=world.now)).states[State.COMPLETED] == 2

    @scenario
    async def test_every_end_of_a_run_is_counted(self, world: World) -> None:
        await world.put(run := world.run())
        for ends in (1, 2):
            await world.store.cancel([run.id], now=world.now)
            assert (await world.store.counts(now=world.now)).states[State.CANCELLED] == ends
            await world.store.redrive([run.id], now=world.now)
        counts = (await world.store.counts(now=world.now)).states
        assert (counts[State.CANCELLED], counts[State.QUEUED]) == (2, 1)
