"""Live runs: whether they may begin, and how they are stopped."""

import asyncio
from datetime import UTC, datetime

import pytest

from duly.model import Claim, Run
from duly.runtime.active_runs import ActiveRun, Unbegun

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def live_until(trusted_until: float) -> ActiveRun:
    return ActiveRun(Claim(Run("id", "job", "job", NOW, NOW), 1, NOW), None, 0.0, trusted_until)


async def stopped(*, after_first_step: bool) -> list[str]:
    """What a task does that is stopped before its first step, or after it."""
    live = live_until(1.0)
    done: list[str] = []

    async def work() -> None:
        live.entered = True
        done.append("entered")
        try:
            live.begin(0.0)
            await asyncio.Event().wait()
        except Unbegun:
            done.append("not begun")
        except asyncio.CancelledError:
            done.append("cancelled")
        done.append("slot freed")

    live.task = asyncio.get_running_loop().create_task(work())
    if after_first_step:
        await asyncio.sleep(0)
    live.released = True
    live.stop()
    await live.task
    return done


async def test_a_run_that_is_stopped_before_its_first_step_is_not_begun_and_frees_its_slot_all_the_same():
    assert await stopped(after_first_step=False) == ["entered", "not begun", "slot freed"]


async def test_a_run_that_is_stopped_later_is_cancelled_where_it_waits():
    assert await stopped(after_first_step=True) == ["entered", "cancelled", "slot freed"]


def test_a_claim_that_has_expired_is_not_begun():
    live = live_until(10.0)
    with pytest.raises(Unbegun):
        live.begin(10.0)
    assert not live.began
    live.begin(9.999)
    assert live.began


@pytest.mark.parametrize("flag", ["cancelled", "lost", "released", "timed_out"])
def test_what_somebody_wants_stopped_is_not_begun(flag):
    live = live_until(10.0)
    setattr(live, flag, True)
    with pytest.raises(Unbegun):
        live.begin(0.0)
