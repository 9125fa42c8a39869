"""A run that kills its node fails; those that ran beside it complete."""

import asyncio

import pytest

from duly import Context, Scheduler
from duly.model import State
from duly.model.holds import ALONE
from duly.testing.sim import Fault
from tests.sim.company import Company, played

INNOCENT = 12


class Poison:
    """A program with one handler that kills its process, and somebody who starts the process again."""

    def __init__(self, company, seconds=2.0, **settings):
        self.company = company
        self.seconds = seconds
        self.settings = {"max_concurrent": INNOCENT + 1} | settings
        self.kills = []  # how many others ran on the node that was killed
        self.lives = 0
        self.running = {}

    def program(self, life):
        scheduler = Scheduler("memory://")
        running = self.running[life] = set()

        @scheduler.job(retry=None)
        async def work(ctx: Context) -> None:
            running.add(ctx.run_id)
            await asyncio.sleep(self.seconds)
            running.discard(ctx.run_id)

        @scheduler.job(retry=None)
        async def poison(ctx: Context) -> None:
            self.dying.set()
            await asyncio.sleep(1000)

        return scheduler

    async def has_killed(self):
        return self.kills

    async def supervise(self, name="one"):
        """Start a node; kill it when the poison is at work, and start the next one."""
        while True:
            self.lives += 1
            self.dying = asyncio.Event()
            life = self.lives
            member = await self.company.start(name, self.program(life), **self.settings)
            await self.dying.wait()
            await asyncio.sleep(0.5)
            self.kills.append(len(self.running[life]))
            member.node.kill()


async def play(company, seconds=2.0, **settings):
    poison = Poison(company, seconds, **settings)
    puts = [await company.submit("work") for _ in range(INNOCENT // 2)]
    bad = await company.submit("poison")
    puts += [await company.submit("work") for _ in range(INNOCENT // 2)]
    async with asyncio.TaskGroup() as group:
        supervising = group.create_task(poison.supervise())
        ended = [await company.office.ended(put.id, 3000) for put in puts]
        culprit = await company.office.ended(bad.id, 3000)
        supervising.cancel()
    return poison, ended, culprit


@played
async def test_only_the_run_that_kills_its_node_fails(company):
    poison, ended, culprit = await play(company)
    assert {run.state for run in ended} == {State.COMPLETED}
    assert {run.losses for run in ended} == {2}
    assert (culprit.state, culprit.losses) == (State.FAILED, 3)
    assert culprit.reason == "its worker vanished 3 times, the last time with no other run on it"
    assert poison.kills == [INNOCENT, INNOCENT, 0]


@played
async def test_runs_that_take_longer_than_their_time_alone_are_not_blamed(company):
    _, ended, culprit = await play(company, 20.0, lock_ttl=3)
    assert {run.state for run in ended} == {State.COMPLETED}
    assert culprit.state is State.FAILED


@played
async def test_how_many_losses_fail_a_run_is_a_setting(company):
    poison, ended, culprit = await play(company, max_losses=2)
    assert {run.losses for run in ended} == {1}
    assert (culprit.state, culprit.losses) == (State.FAILED, 2)
    assert poison.kills == [INNOCENT, 0]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_calls_that_are_lost_fail_no_innocent_run(fault):
    company = Company()

    async def act():
        company.network.script("one", "queue.claim_held", *[fault] * 5)
        _, ended, culprit = await play(company)
        assert {run.state for run in ended} == {State.COMPLETED}
        assert culprit.state is State.FAILED

    company.play(act())


@played
async def test_suspects_that_cannot_start_do_not_hide_others(company):
    waiting = [company.run("unknown", hold=ALONE, losses=2) for _ in range(50)]
    able = company.run("work", hold=ALONE, losses=2)
    await company.office.backend.queue.put([*waiting, able])
    await company.start("one", Poison(company).program(1))
    assert (await company.office.ended(able.id, 30)).state is State.COMPLETED


@played
async def test_a_paused_queue_keeps_suspects_and_closes_no_node(company):
    poison = Poison(company, max_losses=2)
    puts = [await company.submit("work") for _ in range(2)]
    await company.submit("poison")
    async with asyncio.TaskGroup() as group:
        supervising = group.create_task(poison.supervise())
        await company.until(poison.has_killed)
        await company.office.backend.store.pause("default")
        await asyncio.sleep(60)
        waits = await company.office.explainer.waits_for(await company.office.run(puts[0].id))
        assert waits.startswith("Its worker vanished once, so it may be the cause and is tried alone.")
        assert waits.endswith("the queue 'default' is paused.")
        other = await company.submit("work", queue="other")
        assert (await company.office.ended(other.id, 20)).state is State.COMPLETED
        await company.office.backend.store.resume("default")
        for put in puts:
            assert (await company.office.ended(put.id, 600)).state is State.COMPLETED
        supervising.cancel()


def test_a_suspect_is_tried_on_a_node_that_always_has_work():
    company = Company()

    async def act():
        poison = Poison(company, 1.0, max_concurrent=4)

        async def flood():
            while True:
                for _ in range(4):
                    await company.submit("work")
                await asyncio.sleep(0.5)  # twice as many as it can do

        bad = await company.submit("poison")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(flood()), group.create_task(poison.supervise())]
            culprit = await company.office.ended(bad.id, 600)
            assert (culprit.state, culprit.losses) == (State.FAILED, 3)
            done = len(await company.runs("work", State.COMPLETED))
            await asyncio.sleep(20)
            assert len(await company.runs("work", State.COMPLETED)) > done
            for task in tasks:
                task.cancel()
        assert await company.runs("work", State.FAILED) == []

    company.play(act())
