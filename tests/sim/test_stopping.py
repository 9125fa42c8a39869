"""Stops in virtual time: claims under way, answers that are lost, handlers that go on, a store that is away."""

import asyncio

import pytest
from msgspec.structs import replace

from duly import Context, Scheduler, State
from duly.model import OutcomeKind
from duly.model.event import HandlersAbandoned, NodeStopped, StopHindered
from duly.testing.sim import FAIR
from duly.testing.sim.network import Fault
from tests.sim.company import Company, played

BOUND = 2.0


def program(begun, seconds=60.0, *, stubborn=False):
    scheduler = Scheduler("memory://")

    async def act(ctx):
        begun.append((ctx.job, ctx.attempt))
        while True:
            try:
                return await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    @scheduler.job()
    async def work(ctx: Context) -> None:
        await act(ctx)

    @scheduler.job(delivery="at_most_once")
    async def once(ctx: Context) -> None:
        await act(ctx)

    return scheduler


async def state_of(company, put):
    run = await company.office.run(put.id)
    return run.state, run.failures, run.losses


async def stored(company, state):
    """Whether all runs there are have come to this state; asked of the store itself, since the network is slow."""
    runs = company.contents.runs.by_id.values()
    return runs and all(run.state is state for run in runs)


async def stopped(company, member, timeout=5.0):
    """How a node stops, and how long it takes."""
    began = company.loop.time()
    report = await member.node.start(member.running.stop(timeout))
    return report, company.loop.time() - began


@pytest.mark.parametrize("job", ["work", "once"])
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.ANSWER_LOST, Fault.REQUEST_LOST])
def test_a_claim_under_way_is_given_back_unbegun(job, fault):
    """Its answer comes after the stop began, or never: what it lent is asked for again."""
    company, begun = Company(), []

    async def act():
        member = await company.start("one", program(begun))
        await asyncio.sleep(3)
        company.network.weather = replace(FAIR, answer=(0.5, 0.5))
        company.network.script("one", "queue.claim", fault)
        submitting = asyncio.create_task(company.submit(job))
        await company.until(lambda: stored(company, State.QUEUED if fault is Fault.REQUEST_LOST else State.RUNNING))
        report, _ = await stopped(company, member)
        put = await submitting
        assert begun == []
        assert await state_of(company, put) == (State.QUEUED, 0, 0)
        assert await company.office.attempts(put.id) == []
        assert report.left == 0
        second = await company.start("two", program(begun, 1.0))
        assert (await company.office.ended(put.id, 60)).state is State.COMPLETED
        await company.stop(second)

    company.play(act())


@played
async def test_what_goes_on_is_given_back_and_counts_for_nothing(company):
    begun = []
    member = await company.start("one", program(begun, stubborn=True))
    work, once = await company.submit("work"), await company.submit("once")
    await asyncio.sleep(3)
    report, seconds = await stopped(company, member)
    assert seconds <= 5 + BOUND
    assert (report.drained, report.released, report.interrupted, report.left) == (0, 1, 1, 0)
    assert await state_of(company, work) == (State.QUEUED, 0, 0)
    assert await state_of(company, once) == (State.LOST, 0, 0)
    assert [attempt.outcome for attempt in await company.office.attempts(work.id)] == [OutcomeKind.INTERRUPTED]
    [abandoned] = member.events(HandlersAbandoned)
    assert {run.id for run in abandoned.runs} == {work.id, once.id}
    assert [(event.drained, event.released) for event in member.events(NodeStopped)] == [(0, 1)]


@played
async def test_what_ends_in_time_is_counted_as_finished(company):
    begun = []
    member = await company.start("one", program(begun, seconds=4.0))
    put = await company.submit("work")
    await asyncio.sleep(3)
    report, seconds = await stopped(company, member, 30.0)
    assert (report.drained, report.released, report.left) == (1, 0, 0)
    assert seconds < 3
    assert (await state_of(company, put))[0] is State.COMPLETED


@played
async def test_without_the_store_a_stop_ends_in_time_and_says_what_it_left(company):
    begun = []
    member = await company.start("one", program(begun))
    put = await company.submit("work")
    await asyncio.sleep(3)
    company.network.take_away()
    report, seconds = await stopped(company, member)
    assert seconds <= 5 + BOUND
    assert (report.drained, report.released, report.left) == (0, 0, 1)
    assert {event.step for event in member.events(StopHindered)} >= {"announce", "settle", "retire"}
    company.network.bring_back()
    await company.start("two", program(begun, 1.0))
    run = await company.office.ended(put.id, 100)
    assert (run.state, run.losses) == (State.COMPLETED, 1)  # nobody could know that it was interrupted


@played
async def test_a_store_that_comes_back_while_the_node_stops_hears_what_became_of_its_runs(company):
    begun = []
    member = await company.start("one", program(begun, seconds=4.0))
    put = await company.submit("work")
    await asyncio.sleep(2)
    company.network.take_away()
    stopping = asyncio.create_task(stopped(company, member, 30.0))
    await asyncio.sleep(12)
    company.network.bring_back()
    report, _ = await stopping
    assert (report.drained, report.left) == (1, 0)
    assert await state_of(company, put) == (State.COMPLETED, 0, 0)


@played
async def test_a_step_that_fails_does_not_keep_the_others_from_being_done(company):
    begun = []
    member = await company.start("one", program(begun))
    put = await company.submit("work")
    await asyncio.sleep(3)

    def broken():
        raise RuntimeError("by a fault of ours")

    member.running.node.worker.interrupt = broken
    report, seconds = await stopped(company, member)
    assert seconds <= 5 + BOUND
    hindered = {event.step: event.failure.message for event in member.events(StopHindered)}
    assert hindered["interrupt"] == "by a fault of ours"
    assert await company.office.backend.coordinator.nodes() == []
    assert len(member.events(NodeStopped)) == 1
    assert report.left == 1
    assert (await state_of(company, put))[0] is State.RUNNING


@played
async def test_a_claim_that_expired_while_the_process_was_paused_is_not_begun(company):
    """Between the answer to the claim and the first step of its task: 44 such begins were seen in a campaign."""
    begun = []
    company.network.weather = replace(FAIR, answer=(0.5, 0.5))
    member = await company.start("one", program(begun, 1.0), tick_interval=0.5)
    await asyncio.sleep(3)
    submitting = asyncio.gather(company.submit("work"), company.submit("once"))
    await company.until(lambda: stored(company, State.RUNNING))
    member.node.pause()  # the answer is under way
    await asyncio.sleep(20)
    work, once = await submitting
    member.node.resume()
    await asyncio.sleep(0.1)
    assert begun == []
    assert (await company.office.ended(work.id, 60)).state is State.COMPLETED
    assert (await company.office.ended(once.id, 60)).state is State.COMPLETED
    assert sorted(begun) == [("once", 1), ("work", 1)]
    for put in (work, once):
        assert (await state_of(company, put))[1:] == (0, 0)
