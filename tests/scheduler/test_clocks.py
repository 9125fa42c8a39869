"""Processes whose own clocks are wrong: on a shared store it makes no difference."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import eventually
from tests.faults.node import Off

from duly import Context, Every, Scheduler, SchedulerConfig
from duly.model import State

OFF = [-600, -60, 60, 600]


def program(url, clock=None, *, seconds=1.0, description="", **settings):
    scheduler = Scheduler(url, SchedulerConfig(**settings), clock=clock)
    scheduler.began = []

    @scheduler.job(Every(seconds=seconds), overlap="allow", description=description)
    async def beat(ctx: Context) -> None:
        scheduler.began.append((ctx.due, datetime.now(UTC)))

    @scheduler.job
    async def mail(ctx: Context) -> None:
        scheduler.began.append((ctx.due, datetime.now(UTC)))

    return scheduler


@pytest.mark.parametrize("off", OFF)
async def test_a_client_with_a_wrong_clock_delays_pauses_and_resumes_as_others_do(shared_url, off):
    node = program(shared_url, seconds=3600)
    client = program(shared_url, Off(off))
    async with node, client.client():
        asked = datetime.now(UTC)
        run = await client.submit("mail", delay=0.5)
        await run.result(timeout=30)
        [(_, began)] = node.began
        assert began - asked >= timedelta(seconds=0.5)
        await client.pause("beat")
        await client.resume("beat")
        view = await client.get_job("beat")
        assert view.next_run_at - datetime.now(UTC) <= timedelta(seconds=3600)
        assert not (await client.runs("beat", State.SKIPPED)).runs


@pytest.mark.parametrize("off", OFF)
async def test_a_node_with_a_wrong_clock_plans_and_starts_in_time(shared_url, off):
    right = program(shared_url, seconds=0.5, roles=("worker",), queues=("nothing",))
    wrong = program(shared_url, Off(off), seconds=0.5)
    async with right, wrong:

        async def several():
            return len(wrong.began) >= 4

        await eventually(several)
        assert not (await wrong.runs("beat", State.SKIPPED)).runs
        started = {node.id: node.started_at for node in await right.nodes()}
        assert max(started.values()) - min(started.values()) < timedelta(seconds=30)
    assert all(began >= due for due, began in wrong.began)


@pytest.mark.parametrize("off", OFF)
async def test_the_code_of_the_node_that_started_last_stands_whatever_its_clock_says(shared_url, off):
    first, last = program(shared_url, description="first"), program(shared_url, Off(off), description="last")
    async with first, last:
        assert (await first.get_job("beat")).description == "last"
        await asyncio.sleep(0)
        running = first._running
        await running.deploy()  # as when the store has forgotten the node
        assert (await first.get_job("beat")).description == "last"
