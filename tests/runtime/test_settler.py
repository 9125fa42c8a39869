"""The settler, stepped by hand: what it sends, when, and what it sends again."""

import asyncio
import random
from datetime import UTC, datetime

import pytest

from duly.errors import BackendUnavailable
from duly.model import Claim, Failed, Failure, Node, RetrySpec, Run, RunPolicy, SchedulerConfig, State, Succeeded
from duly.model.event import SettlementAbandoned
from duly.ports import StoreClock
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment
from duly.runtime.hooks import Hooks
from duly.runtime.live_config import LiveConfig
from duly.runtime.next_due import NextDue
from duly.runtime.service import Signal
from duly.runtime.settler import Settler
from duly.testing.clock import ManualClock

START = datetime(2027, 3, 1, tzinfo=UTC)
SHAKY = RunPolicy(retry=RetrySpec(max_retries=3, jitter=0.5))


class Events(list):
    """Where events go; nobody wants the frequent ones."""

    def __call__(self, event):
        self.append(event)

    def wants(self, kind):
        return False


class Queue:
    """Takes settlements, except in the first calls, and except those that `refuses` names."""

    def __init__(self, failing=0, refuses=lambda settlement: False):
        self.failing = failing
        self.refuses = refuses
        self.calls = []
        self.taken = []

    async def settle(self, settlements):
        self.calls.append(list(settlements))
        if len(self.calls) <= self.failing:
            raise BackendUnavailable("away")
        if any(self.refuses(settlement) for settlement in settlements):
            raise UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed")
        self.taken += settlements
        return [True] * len(settlements)


def settler_of(queue, events=None):
    clock = ManualClock(START)
    emit = Events() if events is None else events
    env = Environment(
        Node("n", "h", 1, START),
        LiveConfig(SchedulerConfig(max_concurrent=10)),
        StoreClock(clock, direct=True),
        emit,
        random.Random(0),
    )
    return Settler(env, queue, ActiveRuns(), Hooks(None, None, emit), NextDue(Signal(), clock.now))


def live(number, policy=SHAKY):
    run = Run(f"r{number}", "mail", "mail", START, START, policy=policy, fence=number, node="n", started_at=START)
    return ActiveRun(Claim(run, number, START), None, 0.0, 15.0)


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


async def test_a_settlement_that_cannot_be_stored_does_not_keep_its_neighbours():
    queue = Queue(refuses=lambda settlement: settlement.result == b"hostile")
    settler = settler_of(queue)
    for number in range(100):
        settler.offer(live(number), Succeeded(b"hostile" if number in (7, 61) else b"fine"))
    await settler.flush()
    assert {settlement.fence for settlement in queue.taken} == set(range(100))
    plain = [settlement for settlement in queue.taken if settlement.fence in (7, 61)]
    assert all(settlement.state is State.COMPLETED and settlement.result is None for settlement in plain)
    assert all("could not be stored" in settlement.reason for settlement in plain)


async def test_a_failure_that_cannot_be_stored_is_retried_as_it_would_have_been():
    hostile = Failure("ValueError", "hostile")
    queue = Queue(refuses=lambda settlement: settlement.failure == hostile)
    settler = settler_of(queue)
    settler.offer(live(1), Failed(hostile))
    settler.offer(live(2), Failed(Failure("ValueError", "fine")))
    await settler.flush()
    stored = {settlement.fence: settlement for settlement in queue.taken}
    assert stored[1].state is stored[2].state is State.PENDING
    assert stored[1].failures == 1
    assert stored[1].failure.type == stored[1].attempt.failure.type == "NotStorable"


async def test_what_cannot_be_stored_at_all_is_given_up_and_reported():
    queue, events = Queue(refuses=lambda settlement: settlement.fence == 2), Events()
    settler = settler_of(queue, events)
    active_runs = [live(number) for number in (1, 2, 3)]
    for each in active_runs:
        settler._active_runs.add(each)
        settler.offer(each, Succeeded())
    await settler.flush()
    assert [settlement.fence for settlement in queue.taken] == [1, 3]
    assert [event.run.id for event in events if isinstance(event, SettlementAbandoned)] == ["r2"]
    assert len(settler._active_runs) == 0  # it is no longer renewed: another node takes it over


async def test_a_store_that_refuses_everything_loses_nothing():
    refusing = True
    queue = Queue(refuses=lambda settlement: refusing)
    settler = settler_of(queue)
    for number in range(100):
        settler.offer(live(number), Succeeded())
    for _ in range(3):
        with pytest.raises(UnicodeEncodeError):
            await settler.tick()
    refusing = False
    await settler.flush()
    assert {settlement.fence for settlement in queue.taken} == set(range(100))
    assert all(settlement.reason is None for settlement in queue.taken)
