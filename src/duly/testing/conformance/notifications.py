"""What every backend must do for tasks that wait for work, or for the end of a run."""

from __future__ import annotations

import asyncio

from duly.model import State
from duly.testing.conformance.world import World, part, scenario


@part
class NotificationSuite:
    """Waiting for work, and for the end of runs."""

    # --- wait

    @scenario
    async def test_wait_ends_at_its_timeout(self, world: World) -> None:
        await world.queue.wait("n", None, 0.01)
        await world.queue.wait("n", None, 0.01)

    @scenario
    async def test_wait_ends_early_on_new_work(self, world: World) -> None:
        if not world.backend.capabilities.push:
            return
        while True:  # swallow the hints of the set-up
            try:
                async with asyncio.timeout(0.2):
                    await world.queue.wait("n", None, 60)
            except TimeoutError:
                break
        async with asyncio.timeout(30):
            waiting = asyncio.create_task(world.queue.wait("n", None, 60))
            async with world.backend.session() as other:
                while not waiting.done():
                    await other.queue.put([world.run()], now=world.now)
                    await asyncio.wait([waiting], timeout=0.2)

    # --- finished

    @scenario
    async def test_finished_returns_what_has_ended(self, world: World) -> None:
        await world.put(world.run(), world.run())
        first, second = await world.claim()
        await world.settle(first)
        [ended] = await world.store.finished([first.run.id, second.run.id], 30)
        assert (ended.id, ended.state) == (first.run.id, State.COMPLETED)
        assert await world.store.finished([second.run.id], 0.01) == []
        assert await world.store.finished(["0none"], 30) == []

    @scenario
    async def test_finished_wakes_when_a_run_ends(self, world: World) -> None:
        await world.put(run := world.run())
        [claim] = await world.claim()
        async with asyncio.timeout(30):
            waiting = asyncio.create_task(world.store.finished([run.id], 60))
            await asyncio.sleep(0)
            await world.settle(claim)
            [ended] = await waiting
        assert ended.state is State.COMPLETED
