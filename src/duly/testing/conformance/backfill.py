"""What every store must do with runs that are added for past instants."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from duly.model import Cause, Fired, JobRecord, Run, RunQuery, State, WhenFull
from duly.model.run import BACKFILLED_BY
from duly.rules.planning import skipped
from duly.testing.conformance.world import World, part, scenario


async def _recorded(world: World, record: JobRecord, *runs: Run) -> None:
    """A job of which the planner has recorded these runs."""
    await world.create(record)
    epoch = await world.store.install("main", 1)
    firing = replace(world.firing(record, [], cursor=record.cursor), runs=runs)
    assert await world.store.fire([firing], "main", epoch, now=world.now) == [Fired.APPLIED]


def _late(world: World, record: JobRecord, due: datetime, **fields: Any) -> Run:
    """A run that is added now for a past instant."""
    values: dict[str, Any] = {"ready_at": world.now, "payload": b'{"late":true}', "headers": {BACKFILLED_BY: "ada"}}
    return world.planned(record, due, cause=Cause.BACKFILL, **values | fields)


@part
class BackfillSuite:
    """Runs for past instants: added where there is none, and in place of skipped ones."""

    @scenario
    async def test_a_run_is_added_for_an_instant_without_a_record(self, world: World) -> None:
        await world.create(record := world.record())
        run = _late(world, record, world.after(-500))
        assert await world.store.backfill([run], now=world.now) == [True]
        stored = await world.stored(run)
        assert (stored.state, stored.cause, stored.due) == (State.QUEUED, Cause.BACKFILL, run.due)
        assert stored.created_at == world.now
        [claim] = await world.claim()
        assert (claim.run.id, claim.run.cause, claim.run.payload) == (run.id, Cause.BACKFILL, run.payload)
        assert await world.settle(claim)
        await world.put(triggered := world.run(record.name, cause=Cause.TRIGGER))
        for cause, expected in ((Cause.BACKFILL, run), (Cause.TRIGGER, triggered)):
            [found] = (await world.store.runs(RunQuery(cause=cause), 10, now=world.now)).runs
            assert (found.id, found.cause) == (expected.id, cause)

    @scenario
    async def test_a_run_replaces_a_skipped_one(self, world: World) -> None:
        record, due = world.record(), world.after(-500)
        await _recorded(world, record, skip := skipped(record, due, due, "misfire"))
        assert await world.state(skip) is State.SKIPPED
        world.advance(5)
        run = _late(world, record, due)
        assert await world.store.backfill([run], now=world.now) == [True]
        stored = await world.stored(run)
        assert (stored.state, stored.reason, stored.payload) == (State.QUEUED, None, run.payload)
        assert stored.created_at == world.now
        query = RunQuery(states=(State.SKIPPED,))
        assert (await world.store.runs(query, 10, now=world.now)).runs == []
        assert await world.store.purge(State.SKIPPED, world.after(1), None, 10) == 0
        [claim] = await world.claim()
        assert claim.run.id == run.id

    @scenario
    async def test_no_run_replaces_one_that_was_not_skipped(self, world: World) -> None:
        record = world.record()
        first, second, third = (world.planned(record, world.after(-delay)) for delay in (30, 20, 10))
        await _recorded(world, record, first)
        [claim] = await world.claim()
        await world.settle(claim)
        await world.put(second)
        [claim] = await world.claim()
        await world.put(third)
        late = [_late(world, record, run.due) for run in (first, second, third)]
        assert await world.store.backfill(late, now=world.now) == [False, False, False]
        assert await world.state(first) is State.COMPLETED
        assert await world.state(second) is State.RUNNING
        assert (await world.stored(third)).cause is Cause.SCHEDULE

    @scenario
    async def test_a_repeat_adds_nothing(self, world: World) -> None:
        await world.create(record := world.record())
        run = _late(world, record, world.after(-500))
        assert await world.store.backfill([run, run], now=world.now) == [True, False]
        assert await world.store.backfill([run], now=world.now) == [False]
        assert await world.store.backfill([], now=world.now) == []
        assert len(await world.claim()) == 1

    @scenario
    async def test_the_rest_of_a_skipped_range_stays_recorded(self, world: World) -> None:
        record = world.record()
        instants = [world.after(-100 + 10 * number) for number in range(5)]
        await _recorded(world, record, skipped(record, instants[0], instants[-1], "misfire"))
        run = _late(world, record, instants[0])
        rest = skipped(record, instants[1], instants[-1], "misfire")
        assert await world.store.backfill([run, rest], now=world.now) == [True, True]
        assert await world.state(run) is State.QUEUED
        for due in instants[1:]:
            covering = await world.store.covering(record.uid, due)
            assert covering is not None
            assert (covering.id, covering.state, covering.reason) == (rest.id, State.SKIPPED, "misfire")
        middle = _late(world, record, instants[2])
        assert await world.store.backfill([middle], now=world.now) == [True]
        covering = await world.store.covering(record.uid, instants[2])
        assert covering is not None
        assert covering.id == middle.id
        found = await world.store.ledger(record.uid, instants[0], instants[-1], 10, instants, now=world.now)
        assert [each.id for each in found] == [run.id, rest.id, middle.id]

    @scenario
    async def test_runs_of_a_group_wait_for_each_other(self, world: World) -> None:
        await world.create(record := world.record())
        runs = [
            _late(world, record, world.after(-100 * number), group=record.name, when_full=WhenFull.QUEUE)
            for number in (3, 2, 1)
        ]
        assert await world.store.backfill(runs, now=world.now) == [True, True, True]
        order = []
        for _ in runs:
            [claim] = await world.claim()
            order.append(claim.run.id)
            await world.settle(claim)
        assert order == [run.id for run in runs]

    @scenario
    async def test_removing_the_job_cancels_them(self, world: World) -> None:
        await world.create(record := world.record())
        run = _late(world, record, world.after(-500))
        await world.store.backfill([run], now=world.now)
        assert await world.store.remove(record.name, 1, now=world.now)
        assert await world.state(run) is State.CANCELLED
