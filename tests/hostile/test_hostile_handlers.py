"""Whatever a handler raises, returns or reports, and whatever a hook answers: it is recorded and the node goes on."""

import asyncio
import math

import pytest

from duly import Context, GiveUp, Job, Retry, RetryPolicy, Scheduler, SchedulerConfig
from duly.model import State
from tests.hostile.handlers import EVERY, RAISING, REPORTING, RETURNING
from tests.hostile.values import Mute

INNOCENT = 30


def _scheduler(url, **settings):
    scheduler = Scheduler(url, SchedulerConfig(lock_ttl=5.0, **settings))

    @scheduler.job
    async def innocent(number: int) -> int:
        await asyncio.sleep(0)
        return number

    return scheduler


async def _all_end(scheduler, handles):
    """Every run ends and is recorded."""
    ended = []
    for handle in handles:
        client = await scheduler.opened()
        ended.append(await client.ended(handle.id, 60))
    return ended


async def _is_well(scheduler):
    health = await scheduler.health()
    assert (health.status, health.failing, health.busy) == ("healthy", {}, 0)
    page = await scheduler.runs(limit=1000)
    assert not [run for run in page.runs if not run.final or run.damage]
    for run in page.runs:
        await scheduler.attempts(run.id)


def _as_async(handler):
    async def hostile(ctx: Context) -> object:
        await asyncio.sleep(0)
        return handler(ctx)

    return hostile


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_every_outcome_is_recorded_beside_innocent_runs(url, kind):
    scheduler = _scheduler(url)
    for name, handler in EVERY.items():
        target = handler if kind == "thread" else _as_async(handler)
        scheduler.add(Job(name=name, handler=target, retry=None, timeout=30))
    async with scheduler:
        hostile = [await scheduler.submit(name) for name in EVERY for _ in range(2)]
        innocent = [await scheduler.submit("innocent", {"number": number}) for number in range(INNOCENT)]
        results = [await handle.result(timeout=60) for handle in innocent]
        assert results == list(range(INNOCENT))
        states = {run.job: run for run in await _all_end(scheduler, hostile)}
        for name in RETURNING | REPORTING:
            assert states[name].state is State.COMPLETED, states[name]
        for name in RAISING.keys() - {"cancelled"}:
            assert states[name].state is State.FAILED, states[name]
            assert states[name].failure is not None
        assert not any(run.losses for run in states.values())
        await _is_well(scheduler)
    async with scheduler.client():
        assert not (await scheduler.counts()).states[State.RUNNING]


ANSWERS = {
    "retry": lambda: Retry(after=0),
    "retry negative": lambda: Retry(after=-5),
    "retry altered": lambda: _with(Retry(after=0), after=math.nan),
    "give up": lambda: GiveUp(Mute()),
    "text": lambda: "a\ud800",
    "object": Mute,
    "raises": lambda: 1 / 0,
    "coroutine": lambda: asyncio.sleep(0),
    "exits": lambda: (_ for _ in ()).throw(SystemExit(1)),
}


def _with(exc, **attributes):
    for name, value in attributes.items():
        setattr(exc, name, value)
    return exc


async def test_no_answer_of_a_hook_stops_the_node(url):
    scheduler = _scheduler(url)
    for number, answer in enumerate(ANSWERS.values()):
        hook = lambda run, job, exc, answer=answer: answer()  # noqa: E731

        async def broken() -> None:
            raise ValueError("\ud800")

        retry = RetryPolicy.fixed(1, 0)
        scheduler.add(Job(name=f"hooked_{number}", handler=broken, retry=retry, on_error=hook, on_failure=hook))
    async with scheduler:
        hostile = [await scheduler.submit(f"hooked_{number}") for number in range(len(ANSWERS))]
        innocent = [await scheduler.submit("innocent", {"number": number}) for number in range(INNOCENT)]
        assert [await handle.result(timeout=60) for handle in innocent] == list(range(INNOCENT))
        assert {run.state for run in await _all_end(scheduler, hostile)} == {State.FAILED}
        await _is_well(scheduler)


DELAYS = [math.nan, math.inf, -1, "1", object(), 10**400, Mute()]


@pytest.mark.parametrize("answer", DELAYS, ids=lambda value: type(value).__name__)
async def test_no_answer_of_a_retry_strategy_stops_the_node(answer):
    scheduler = _scheduler("memory://")

    async def broken() -> None:
        raise ValueError("no")

    policy = RetryPolicy(max_retries=1, initial_interval=0, strategy=lambda failures, exc: answer)
    scheduler.add(Job(name="broken", handler=broken, retry=policy))
    async with scheduler:
        [run] = await _all_end(scheduler, [await scheduler.submit("broken")])
        assert run.state is State.FAILED
        await _is_well(scheduler)
