"""Misfire policies when all nodes are away for a while: they hold for runs that were planned before that, too."""

import asyncio
from datetime import timedelta

import pytest

from duly import Cron, Every, Job, Scheduler, State
from duly.model.event import RunMissed
from tests.sim.company import Company, played


async def nothing() -> None: ...


def program(schedule, **options):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="report", handler=nothing, schedule=schedule, **options))
    return scheduler


async def outage(company, schedule, before, away, **options):
    """One node runs, is killed, and another starts after a while; when that was."""
    first = await company.start("first", program(schedule, **options))
    await asyncio.sleep(before)
    first.node.kill()
    died = company.clock.now()
    await asyncio.sleep(away)
    second = await company.start("second", program(schedule, **options))
    back = company.clock.now()
    await asyncio.sleep(60)
    return died, back, second


def missed(runs):
    return [run for run in runs if run.state is State.SKIPPED]


@pytest.mark.parametrize("overlap", ["skip", "allow", "queue", "replace"])
@pytest.mark.parametrize("away", [110, 500])
def test_skip_starts_nothing_that_is_later_than_the_grace(overlap, away):
    company = Company()

    async def act():
        _, back, _ = await outage(company, Every(10), 95, away, misfire="skip", overlap=overlap)
        runs = await company.runs("report")
        for run in runs:
            if run.state is State.COMPLETED and run.started_at >= back:
                assert run.started_at - run.due <= timedelta(seconds=60), run
        skipped = missed(runs)
        assert {run.reason for run in skipped} <= {"misfire", "overlap"}
        assert all(run.reason == "misfire" for run in skipped if (run.until or run.due) < back - timedelta(seconds=61))
        assert any(run.reason == "misfire" and run.until is None for run in skipped)  # what was planned before

    company.play(act())


@pytest.mark.parametrize("overlap", ["skip", "allow"])
@pytest.mark.parametrize("away", [110, 500])
def test_latest_starts_the_latest_of_the_missed_instants(overlap, away):
    company = Company()

    async def act():
        died, back, _ = await outage(company, Every(10), 95, away, misfire="latest", overlap=overlap)
        runs = await company.runs("report")
        cut = back - timedelta(seconds=60)
        late = [run for run in runs if died < run.due and (run.until or run.due) < cut - timedelta(seconds=1)]
        done = [run for run in late if run.state is State.COMPLETED]
        assert len(done) == 1
        assert done[0] == max(late, key=lambda run: run.due)
        assert {run.reason for run in late if run is not done[0]} == {"misfire"}

    company.play(act())


@played
async def test_a_nightly_job_whose_node_died_just_before_does_not_run_at_noon(company):
    now = company.clock.now()
    nightly = (now + timedelta(minutes=3)).replace(second=0, microsecond=0)
    schedule = Cron(f"{nightly.minute} {nightly.hour} * * *", timezone="UTC")
    before = (nightly - now).total_seconds() - 20
    died, back, second = await outage(company, schedule, before, 10 * 3600, misfire="skip")
    assert died < nightly < back
    [run] = [run for run in await company.runs("report") if run.due == nightly]
    assert (run.state, run.reason) == (State.SKIPPED, "misfire")
    assert [event for event in second.events(RunMissed) if event.run.id == run.id] == []


@played
async def test_what_was_queued_in_time_and_not_started_is_skipped_by_the_worker(company):
    """The only slot is taken for longer than the grace."""

    async def long() -> None:
        await asyncio.sleep(100)

    scheduler = program(Every(30), misfire="skip", overlap="allow")
    scheduler.add(Job(name="long", handler=long))
    node = await company.start("one", scheduler, max_concurrent=1)
    await asyncio.sleep(61)
    put = await company.submit("long")
    await company.office.ended(put.id, 200)
    await asyncio.sleep(30)
    late = [run for run in await company.runs("report") if run.reason == "misfire"]
    assert late
    assert [event.run.id for event in node.events(RunMissed)] == [run.id for run in late]
    assert all(event.late > 60 for event in node.events(RunMissed))


@played
async def test_latest_starts_late_rather_than_not_at_all(company):
    """Later instants gave way to a run that waited in its queue: it is started, however late."""

    async def long() -> None:
        await asyncio.sleep(300)

    scheduler = program(Every(30), misfire="latest", overlap="skip")
    scheduler.add(Job(name="long", handler=long))
    await company.start("one", scheduler, max_concurrent=1)
    await asyncio.sleep(61)
    put = await company.submit("long")
    ended = await company.office.ended(put.id, 400)
    await asyncio.sleep(20)
    runs = await company.runs("report")
    [late] = [run for run in runs if run.started_at and run.started_at - run.due > timedelta(seconds=60)]
    assert late.state is State.COMPLETED
    assert late.started_at >= ended.finished_at
    assert {run.reason for run in runs if run.state is State.SKIPPED} == {"overlap"}


@played
async def test_all_starts_everything_however_late(company):
    await outage(company, Every(10), 95, 110, misfire="all", overlap="allow")
    runs = await company.runs("report")
    assert missed(runs) == []
