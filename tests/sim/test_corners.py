"""Corners of a cluster in virtual time: a store that is away, nodes with different code, schedules in code."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from duly import Context, Every, Job, RetryPolicy, Scheduler, State
from duly.model import JobStatus, Origin, OutcomeKind
from duly.model.event import ClaimUntrusted, JobConflict, PlanFailed, RunsReaped, ServiceFailed
from duly.rules import job_changes
from duly.scheduler.submitting import Options
from duly.testing.sim.clock import SimClock
from tests.sim.company import Company, played


async def nothing() -> None: ...


def idle():
    """A program without work, for a node that only leads and reaps."""
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="idle", handler=nothing))
    return scheduler


# --- a store that is away


def long_work(log, on_store_loss, cleanup=0.0):
    scheduler = Scheduler("memory://")

    @scheduler.job(on_store_loss=on_store_loss, retry=RetryPolicy.fixed(3, 1))
    async def work(ctx: Context) -> None:
        log.append(("began", ctx.attempt))
        try:
            await asyncio.sleep(40)
        except asyncio.CancelledError:
            await asyncio.sleep(cleanup)
            log.append(("stopped", ctx.attempt))
            raise
        log.append(("ended", ctx.attempt))

    return scheduler


@played
async def test_a_handler_that_may_go_on_does_so_through_an_outage_and_is_not_repeated(company):
    log = []
    one = await company.start("one", long_work(log, "continue"))
    two = await company.start("two", long_work(log, "continue"))
    put = await company.submit("work")
    await asyncio.sleep(5)
    company.network.take_away()
    await asyncio.sleep(25)
    company.network.bring_back()
    run = await company.office.ended(put.id, 100)
    assert (run.state, run.failures, run.losses) == (State.COMPLETED, 0, 0)
    assert log == [("began", 1), ("ended", 1)]
    assert [event.stopped for event in one.events(ClaimUntrusted) + two.events(ClaimUntrusted)] == [False]
    assert one.events(RunsReaped) + two.events(RunsReaped) == []


@pytest.mark.parametrize("moment", [-20.0, -0.05, 0.0, 0.05, 1.0, 3.0])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_node_that_starts_around_the_end_of_an_outage_takes_nothing_from_the_living(moment, delivery):
    company, log = Company(), []

    def program():
        scheduler = Scheduler("memory://")

        @scheduler.job(delivery=delivery)
        async def work(ctx: Context) -> None:
            log.append(("began", ctx.attempt))
            await asyncio.sleep(40)
            log.append(("ended", ctx.attempt))

        return scheduler

    async def start_at(when):
        await asyncio.sleep(when)
        return await company.start("newcomer", program())

    async def act():
        await company.start("one", program())
        put = await company.submit("work")
        await asyncio.sleep(5)
        company.network.take_away()
        starting = asyncio.create_task(start_at(25 + moment))
        await asyncio.sleep(25)
        company.network.bring_back()
        newcomer = await starting
        run = await company.office.ended(put.id, 100)
        assert (run.state, run.failures, run.losses) == (State.COMPLETED, 0, 0)
        assert newcomer.events(RunsReaped) == []

    company.play(act())
    assert log == [("began", 1), ("ended", 1)]


@played
async def test_when_all_have_died_the_next_node_takes_over_after_one_lease(company):
    log = []
    one = await company.start("one", long_work(log, "continue"))
    put = await company.submit("work")
    await asyncio.sleep(5)
    one.node.kill()
    await asyncio.sleep(60)
    await company.start("two", long_work(log, "continue"))
    started = company.loop.time()

    async def again():
        return ("began", 2) in log

    await company.until(again)
    assert company.loop.time() - started <= 6 + 2
    assert (await company.office.ended(put.id, 100)).losses == 1


# --- clocks that are wrong


@pytest.mark.parametrize("off", [-600, -60, 60, 600])
def test_a_node_whose_clock_is_wrong_plans_starts_and_reaps_in_time(off):
    company, log = Company(), []

    def program():
        scheduler = Scheduler("memory://")

        @scheduler.job(Every(seconds=5))
        async def tick(ctx: Context) -> None:
            log.append((ctx.due, company.contents.clock.now()))

        @scheduler.job
        async def later() -> None:
            log.append(("later", company.contents.clock.now()))

        return scheduler

    async def act():
        clock = SimClock(company.loop, skew=off)
        member = await company.start("one", program(), clock=clock)
        asked = company.contents.clock.now()
        await member.node.start(member.running.client.submitter.submit("later", None, Options(delay=7)))
        await asyncio.sleep(100)
        [(_, began)] = [entry for entry in log if entry[0] == "later"]
        assert timedelta(seconds=7) <= began - asked <= timedelta(seconds=7.2)
        beats = [(due, began) for due, began in log if due != "later"]
        assert len(beats) >= 19
        assert all(timedelta(0) <= began - due <= timedelta(seconds=0.2) for due, began in beats)
        assert not [run for run in await company.runs("tick") if run.state is State.SKIPPED]

    company.play(act())


@pytest.mark.parametrize("step", [600, -600])
def test_a_jump_of_the_stores_clock_starts_nothing_early_and_stops_no_reaping(step):
    company, log = Company(), []

    async def act():
        one = await company.start("one", long_work(log, "continue"))
        await company.start("two", idle())
        early = await company.submit("work", delay=300)
        await company.submit("work")
        await asyncio.sleep(10)
        company.clock.skew = step
        await asyncio.sleep(8)
        company.clock.skew = 0
        one.node.kill()
        died = company.loop.time()
        await company.start("three", long_work(log, "continue"))

        async def again():
            return ("began", 2) in log

        await company.until(again, seconds=30)
        assert company.loop.time() - died <= 6 + 3
        assert log == [("began", 1), ("began", 2)]
        assert not (await company.office.run(early.id)).final

    company.play(act())


@pytest.mark.parametrize("cleanup", [0.0, 12.0])
def test_a_handler_that_must_stop_does_so_when_its_lease_is_in_doubt(cleanup):
    """However long it takes to clean up: the store may be back before it has."""
    company, log = Company(), []

    async def act():
        one = await company.start("one", long_work(log, "stop", cleanup))
        put = await company.submit("work")
        await asyncio.sleep(5)
        company.network.take_away()
        await asyncio.sleep(9)
        company.network.bring_back()
        run = await company.office.ended(put.id, 200)
        assert (run.state, run.failures, run.losses) == (State.COMPLETED, 0, 1)
        outcomes = [attempt.outcome for attempt in await company.office.attempts(put.id)]
        assert outcomes == [OutcomeKind.LOST, OutcomeKind.SUCCEEDED]
        assert [event.stopped for event in one.events(ClaimUntrusted)] == [True]

    company.play(act())
    assert log == [("began", 1), ("stopped", 1), ("began", 2), ("ended", 2)]


@played
async def test_the_run_of_a_dead_node_is_taken_over_in_time(company):
    log = []
    one = await company.start("one", long_work(log, "continue"))
    put = await company.submit("work")
    await asyncio.sleep(5)
    two = await company.start("two", long_work(log, "continue"))
    one.node.kill()
    died = company.loop.time()

    async def again():
        return ("began", 2) in log

    await company.until(again)
    assert company.loop.time() - died <= 6 + 2
    run = await company.office.ended(put.id, 100)
    assert (run.failures, run.losses) == (0, 1)
    assert [event.run_ids for event in two.events(RunsReaped)] == [(put.id,)]


# --- code that differs from node to node


def program(**options):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="report", handler=nothing, **{"schedule": Every(seconds=10)} | options))
    return scheduler


@played
async def test_the_code_of_the_newest_node_stands(company):
    first = await company.start("first", program(priority=1))
    await asyncio.sleep(15)
    await company.start("second", program(priority=2))
    assert (await company.record("report")).spec.priority == 2
    old = first.running
    await first.node.start(old.deploy())  # as a node that comes back from a pause in the middle of its start
    record = await company.record("report")
    assert (record.spec.priority, record.revision) == (2, 2)
    await company.start("third", program(priority=1))  # a rollback is a newer start
    record = await company.record("report")
    assert (record.spec.priority, record.revision) == (1, 3)


@played
async def test_a_deploy_moves_no_cursor_misses_nothing_and_repeats_nothing(company):
    member = await company.start("one", program(priority=1))
    await asyncio.sleep(33)
    for priority in range(2, 6):
        newer = await company.start("one", program(priority=priority))
        await company.stop(member)
        member = newer
        await asyncio.sleep(17)
    runs = [run for run in await company.runs("report") if run.due <= company.clock.now()]
    assert len(runs) >= 10
    assert {run.state for run in runs[:-1]} == {State.COMPLETED}
    gaps = {after.due - before.due for before, after in pairwise(runs)}
    assert gaps == {timedelta(seconds=10)}
    assert {run.priority for run in runs} == {1, 2, 3, 4, 5}


@played
async def test_a_deploy_leaves_a_paused_job_paused(company):
    await company.start("one", program(priority=1))
    await asyncio.sleep(15)
    await company.definitions.pause("report", "audit")
    await company.start("two", program(priority=2))
    await company.start("three", program(schedule=Every(seconds=7)))
    await asyncio.sleep(60)
    record = await company.record("report")
    assert (record.status, record.paused.note) == (JobStatus.PAUSED, "audit")
    assert {run.due for run in await company.runs("report", State.COMPLETED)} == {
        run.due for run in await company.runs("report", State.COMPLETED) if run.due < record.paused.at
    }


@pytest.mark.parametrize("origin", [Origin.FILE, Origin.API])
def test_code_does_not_overwrite_what_others_define(origin):
    company = Company()

    async def act():
        first = await company.start("first", program(priority=1))
        await company.stop(first)
        record = await company.record("report")
        foreign = replace(record, origin=origin, revision=record.revision + 1)
        [saved] = await company.office.backend.store.save([job_changes.JobChange(foreign, record.revision)])
        assert saved is not None
        second = await company.start("second", program(priority=2))
        kept = await company.record("report")
        assert (kept.spec.priority, kept.origin, kept.revision) == (1, origin, saved.revision)
        [conflict] = second.events(JobConflict)
        assert (conflict.job, origin.value in conflict.reason) == ("report", True)
        await asyncio.sleep(30)  # the definition of others runs with the handler of ours
        assert {run.priority for run in await company.runs("report", State.COMPLETED)} == {1}

    company.play(act())


@played
async def test_a_removed_job_is_reported_until_it_is_restored(company):
    await company.start("first", program())
    await asyncio.sleep(25)
    await company.definitions.remove("report")
    before = await company.record("report")
    second = await company.start("second", program())
    [conflict] = second.events(JobConflict)
    assert "restore=True" in conflict.reason
    await asyncio.sleep(30)
    assert (await company.record("report")).status is JobStatus.REMOVED
    done = len(await company.runs("report", State.COMPLETED))
    third = await company.start("third", program(restore=True))
    after = await company.record("report")
    assert (after.status, after.uid != before.uid) == (JobStatus.ACTIVE, True)
    assert third.events(JobConflict) == []
    await asyncio.sleep(30)
    assert len(await company.runs("report", State.COMPLETED)) > done


# --- schedules that only code can compute


class Tides:
    """Every seven seconds, in a way that no other process knows."""

    def next_run(self, after):
        return after + timedelta(seconds=7 - after.timestamp() % 7)


def sea(**options):
    scheduler = Scheduler("memory://")
    scheduler.add(Job(name="tide", handler=nothing, schedule=Tides(), overlap="allow", **options))
    return scheduler


async def every_tide_once(company):
    """From the first to the last each instant has one record."""
    runs = await company.runs("tide")
    expected = runs[0].due
    for run in runs:
        assert run.due == expected
        expected = Tides().next_run(run.until or run.due)


@played
async def test_a_schedule_in_code_is_planned_by_a_node_that_has_it_though_another_leads(company):
    leader = await company.start("leader", idle())
    await asyncio.sleep(1)
    sailor = await company.start("sailor", sea())
    await asyncio.sleep(60)
    assert leader.running.node.elector.led() == ["main"]
    assert sailor.running.node.elector.led() == ["job:tide"]
    assert len(await company.runs("tide", State.COMPLETED)) >= 8
    await every_tide_once(company)
    assert leader.events(PlanFailed, ServiceFailed) + sailor.events(PlanFailed, ServiceFailed) == []


@played
async def test_two_nodes_with_the_schedule_plan_it_once_and_follow_each_other(company):
    first = await company.start("first", sea())
    second = await company.start("second", sea())
    await asyncio.sleep(30)
    first.node.kill()
    await asyncio.sleep(60)
    assert "job:tide" in second.running.node.elector.led()
    await every_tide_once(company)
    done = await company.runs("tide", State.COMPLETED)
    assert company.clock.now() - done[-1].due <= timedelta(seconds=8)


@pytest.mark.parametrize("away", [20, 50, 200])
def test_a_node_with_a_schedule_in_code_goes_and_comes_back(away):
    """A short absence is caught up, a long one is recorded; nothing is missed silently or doubled."""
    company = Company()

    async def act():
        leader = await company.start("leader", idle(), misfire_grace=60)
        await asyncio.sleep(1)
        sailor = await company.start("sailor", sea(misfire="all"))
        await asyncio.sleep(30)
        await company.stop(sailor)
        await asyncio.sleep(away)
        if away > 100:
            assert (await company.record("tide")).status is JobStatus.RETIRED
        back = await company.start("sailor", sea(misfire="all"))
        returned = company.clock.now()
        await asyncio.sleep(60)
        assert (await company.record("tide")).status is JobStatus.ACTIVE
        await every_tide_once(company)
        done = [run for run in await company.runs("tide", State.COMPLETED) if run.due > returned]
        assert len(done) >= 6
        reasons = {run.reason for run in await company.runs("tide", State.SKIPPED)}
        assert reasons == ({"no_handler"} if away > 100 else set())
        assert leader.events(PlanFailed, ServiceFailed) + back.events(PlanFailed, ServiceFailed) == []

    company.play(act())
