"""Live runs: how they are stopped."""

import asyncio
from datetime import UTC, datetime

from duly.model import Claim, Run
from duly.runtime.live import Live

NOW = datetime(2030, 1, 1, tzinfo=UTC)


async def stopped(*, after_first_step: bool) -> list[str]:
    """What a task does that is stopped before its first step, or after it."""
    live = Live(Claim(Run("id", "job", "job", NOW, NOW), 1, NOW), None, 0.0, 1.0)
    done: list[str] = []

    async def work() -> None:
        live.enter()
        done.append("entered")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append("cancelled")
        done.append("slot freed")

    live.task = asyncio.get_running_loop().create_task(work())
    if after_first_step:
        await asyncio.sleep(0)
    live.stop()
    await live.task
    return done


async def test_a_run_that_is_stopped_before_its_first_step_frees_its_slot_all_the_same():
    assert await stopped(after_first_step=False) == ["entered", "cancelled", "slot freed"]


async def test_a_run_that_is_stopped_later_is_cancelled_where_it_waits():
    assert await stopped(after_first_step=True) == ["entered", "cancelled", "slot freed"]
