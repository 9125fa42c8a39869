"""The settler, stepped by hand: what it sends, when, and what it sends again."""

import asyncio
import random
from datetime import UTC, datetime

import pytest

from duly.errors import BackendUnavailable
from duly.model import Claim, Failed, Failure, Node, RetrySpec, Run, RunPolicy, SchedulerConfig, State, Succeeded
from duly.runtime.hooks import Hooks
from duly.runtime.live import Live, LiveRuns
from duly.runtime.nextdue import NextDue
from duly.runtime.service import Signal
from duly.runtime.settler import Settler
from duly.runtime.surroundings import Surroundings
from duly.testing.clock import ManualClock

START = datetime(2027, 3, 1, tzinfo=UTC)
SHAKY = RunPolicy(retry=RetrySpec(max_retries=3, jitter=0.5))


class Silent:
    """Where events go that nobody wants."""

    def __call__(self, event):
        pass

    def wants(self, kind):
        return False


class Queue:
    """Takes settlements, but for the first so many calls."""

    def __init__(self, failing=0):
        self.failing = failing
        self.calls = []

    async def settle(self, settlements):
        self.calls.append(list(settlements))
        if len(self.calls) <= self.failing:
            raise BackendUnavailable("away")
        return []


def settler_of(queue):
    clock = ManualClock(START)
    around = Surroundings(
        Node("n", "h", 1, START), SchedulerConfig(max_concurrent=10), clock, Silent(), random.Random(0)
    )
    return Settler(around, queue, LiveRuns(), Hooks(None, None, Silent()), NextDue(Signal(), clock.now))


def live(number, policy=SHAKY):
    run = Run(f"r{number}", "mail", "mail", START, START, policy=policy, fence=number, node="n", started_at=START)
    return Live(Claim(run, number, START), None, 0.0, 15.0)


async def test_what_becomes_of_a_run_is_worked_out_once_however_often_it_is_sent():
    queue = Queue(failing=2)
    settler = settler_of(queue)
    settler.offer(live(1), Failed(Failure("ValueError", "no")))
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await settler.tick()
    await settler.tick()
    first, second, third = queue.calls
    assert first[0].state is State.PENDING
    assert first == second == third
    assert settler.empty


async def test_what_the_same_runs_have_woken_before_it_goes_first():
    queue = Queue()
    settler = settler_of(queue)
    settler.offer(live(1), Succeeded())
    order = []

    async def claim():
        order.append("claim")

    async def tick():
        await settler.tick()
        order.append("settle")

    async def worker():
        await asyncio.create_task(claim())  # a backend may need a step of the loop until it sends

    await asyncio.gather(worker(), tick())
    assert order == ["claim", "settle"]
    assert len(queue.calls) == 1


async def test_results_that_wait_to_be_worked_out_count_as_unsettled():
    settler = settler_of(Queue())
    assert settler.empty
    for number in range(1_000):
        assert not settler.full
        settler.offer(live(number), Succeeded())
    assert settler.full
    assert not settler.empty
    await settler.flush()
    assert settler.empty
