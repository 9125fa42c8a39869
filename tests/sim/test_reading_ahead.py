"""Runs that nodes read before they are due: each runs once, at its time, as the store knows it then."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from duly import Context, Every, Job, Scheduler, State
from duly.testing.sim.clock import SimClock
from duly.testing.sim.network import Fault
from tests.sim.company import played

JOBS = 40
PERIOD = 10


def program(log, seconds=0.0):
    scheduler = Scheduler("memory://")

    async def work(ctx: Context) -> None:
        log.append((ctx.run_id, ctx.due))
        await asyncio.sleep(seconds)

    for number in range(JOBS):
        scheduler.add(Job(name=f"job-{number}", handler=work, schedule=Every(seconds=PERIOD)))

    @scheduler.job
    async def mail() -> None: ...

    return scheduler


def begun(company, node=None):
    """The claims that came from beginning what had been read."""
    calls = [call for call in company.calls("queue.begin") if call.answer and node in (None, call.node)]
    return [claim for call in calls for claim in call.answer if claim is not None]


async def instant_after(company, seconds=0.0):
    """Wait until that many seconds before the next instant of all jobs."""
    now = company.clock.now().timestamp()
    next_instant = (now // PERIOD + 1) * PERIOD
    await asyncio.sleep(next_instant - now + seconds)


def once(log):
    assert log
    assert max(Counter(run_id for run_id, _ in log).values()) == 1


@played
async def test_many_runs_that_are_due_together_begin_by_their_ids_once_and_in_time(company):
    log = []
    await company.start("one", program(log))
    await asyncio.sleep(35)
    once(log)
    by_instant = Counter(due for _, due in log)
    assert set(by_instant.values()) == {JOBS}
    assert len(by_instant) == 3
    assert len(begun(company)) >= JOBS
    for claim in begun(company):
        assert timedelta(0) <= claim.run.started_at - claim.run.due < timedelta(seconds=0.2)


@played
async def test_nodes_share_what_they_read(company):
    log = []
    for name in ("one", "two"):
        await company.start(name, program(log, seconds=0.5), max_concurrent=100)
    await asyncio.sleep(35)
    once(log)
    assert set(Counter(due for _, due in log).values()) == {JOBS}
    assert begun(company, "one")
    assert begun(company, "two")


@played
async def test_what_operators_do_after_runs_were_read_counts(company):
    log = []
    await company.start("one", program(log))
    await asyncio.sleep(PERIOD)
    await instant_after(company, -0.3)
    before = len(log)
    await company.definitions.pause("job-1", None)
    [run] = [run for run in await company.runs("job-2", State.PENDING) if run.due - company.clock.now() < timedelta(1)][
        :1
    ]
    await company.office.backend.store.cancel([run.id])
    await asyncio.sleep(2)
    once(log)
    assert len(log) - before == JOBS - 2
    assert run.id not in dict(log)


@played
async def test_a_node_that_dies_with_runs_it_has_read_costs_nothing(company):
    log = []
    one = await company.start("one", program(log))
    await company.start("two", program(log))
    await asyncio.sleep(PERIOD)
    await instant_after(company, -0.2)
    before = len(log)
    one.node.kill()
    await asyncio.sleep(2)
    once(log)
    assert len(log) - before == JOBS


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.DUPLICATED])
def test_a_lost_call_begins_nothing_twice(fault):
    @played
    async def act(company):
        log = []
        await company.start("one", program(log))
        company.network.script("one", "queue.begin", fault)
        await asyncio.sleep(25)
        once(log)
        assert set(Counter(due for _, due in log).values()) == {JOBS}

    act()


@pytest.mark.parametrize("ahead", [-0.5, -0.01, 0.01, 0.5])
def test_a_wrong_clock_lets_nothing_begin_early_or_be_missed(ahead):
    @played
    async def act(company):
        log = []
        await company.start("one", program(log), clock=SimClock(company.loop, skew=ahead))
        await asyncio.sleep(35)
        once(log)
        assert set(Counter(due for _, due in log).values()) == {JOBS}
        assert all(claim.run.started_at >= claim.run.due for claim in begun(company))

    act()


@played
async def test_a_backlog_of_higher_priority_is_not_overtaken(company):
    log = []
    await company.start("one", program(log, seconds=0.2), max_concurrent=10)
    await asyncio.sleep(PERIOD)
    await instant_after(company, -0.1)
    for _ in range(60):
        await company.submit("mail", priority=9)
    await asyncio.sleep(5)
    once(log)
    mails = await company.runs("mail")
    submitted = max(run.created_at for run in mails)
    urgent_end = max(run.started_at for run in mails)
    first = submitted + timedelta(seconds=0.5)
    scheduled = [claim.run for claim in begun(company) if first < claim.run.started_at < urgent_end]
    assert scheduled == []
