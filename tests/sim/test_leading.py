"""Who leads: the longest-registered live node, so that a rolling restart moves leadership once and no more."""

import asyncio

import pytest

from duly import Scheduler
from duly.model.event import LeaderElected
from tests.sim.company import Company

NAMES = ("a", "b", "c", "d")


def program():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def work() -> None:
        await asyncio.sleep(0.05)

    return scheduler


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("seed", range(4))
def test_a_rolling_restart_moves_leadership_once(seed, busy):
    company, lives = Company(seed), []

    async def start(name):
        member = await company.start(name, program())
        lives.append(member)
        await asyncio.sleep(1)
        return member

    async def act():
        members = {name: await start(name) for name in NAMES}
        noise = asyncio.ensure_future(make_noise()) if busy else None
        await asyncio.sleep(5)
        for name in reversed(NAMES):
            await members[name].node.start(members[name].running.stop(20))
            members[name] = await start(name)
            await asyncio.sleep(company.rng.uniform(1, 5))
        if noise is not None:
            noise.cancel()

    async def make_noise():
        """Work that comes all the time, whose hints wake every node at moments of its own."""
        while True:
            await company.submit("work")
            await asyncio.sleep(company.rng.uniform(0.001, 0.08))

    company.play(act())
    elected = sorted((event.epoch, life.running.node.id) for life in lives for event in life.events(LeaderElected))
    assert [node.partition(".")[0] for _, node in elected] == ["a", "d"]
