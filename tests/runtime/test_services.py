"""The small parts of a node: signals, the loop of a service, nudges, timers, batches."""

import asyncio
import math
import sys

import pytest

from duly.errors import BackendUnavailable, ChangesLost
from duly.model import Failure
from duly.model.event import DataLost, ServiceFailed, StoreAway, StoreBack
from duly.runtime.batcher import Batcher
from duly.runtime.failures import failure_of
from duly.runtime.service import Nudge, ServiceHealth, Signal, serve
from duly.runtime.timer import sleep_by_loop, timerfd


class Events(list):
    """Collects what is emitted."""

    def __call__(self, event):
        self.append(event)

    def wants(self, kind):
        return True


class Scripted:
    """A service whose ticks return or raise what a script says, and then wait for ever."""

    name = "scripted"

    def __init__(self, *script):
        self.signal = Signal()
        self.script = list(script)
        self.ticks = 0
        self.exhausted = asyncio.Event()

    async def tick(self):
        self.ticks += 1
        if not self.script:
            self.exhausted.set()
            return math.inf
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


async def served(service, *, clock=lambda: 0.0):
    events = Events()
    health = ServiceHealth(clock)
    task = asyncio.create_task(serve(service, events, health))
    async with asyncio.timeout(30):
        await service.exhausted.wait()
    task.cancel()
    await asyncio.wait([task])
    return events, health


async def test_a_service_is_ticked_again_after_the_delay_it_asks_for():
    events, _ = await served(Scripted(0.0, 0.001, 0.0))
    assert events == []


async def test_a_failing_service_is_an_event_and_is_tried_again():
    events, health = await served(Scripted(ValueError("broken"), KeyError("again"), 0.0))
    assert [(type(event), event.service) for event in events] == [(ServiceFailed, "scripted")] * 2
    assert events[0].failure.message == "broken"
    assert events[1].retry_in > events[0].retry_in
    assert health.away_for() == 0


async def test_a_loss_of_data_is_an_event_besides_the_absence_of_the_store():
    events, _ = await served(Scripted(ChangesLost("it has forgotten 3 runs"), 0.0))
    assert [type(event) for event in events] == [DataLost, StoreAway, StoreBack]
    assert events[0] == DataLost("scripted", "it has forgotten 3 runs")


def test_a_service_that_fails_again_and_again_is_unwell_until_it_works():
    health = ServiceHealth(iter(range(100)).__next__)
    for _ in range(2):
        health.failed("settler", Failure("ValueError", "broken"))
    assert health.failing() == {}
    health.failed("settler", Failure("ValueError", "broken"))
    assert health.failing() == {"settler": "failed 3 times in 1 s, last: ValueError: broken"}
    assert health.well("settler") is None
    assert health.failing() == {}


async def test_a_store_that_is_away_is_told_and_so_is_its_return():
    times = iter(range(100))
    events, health = await served(
        Scripted(BackendUnavailable("no answer"), BackendUnavailable("no answer"), 0.0), clock=lambda: next(times)
    )
    assert [type(event) for event in events] == [StoreAway, StoreAway, StoreBack]
    assert events[2].seconds > 0
    assert health.away_for() == 0


async def test_a_wake_during_a_tick_is_not_lost():
    service = Scripted(math.inf)

    async def tick():
        service.ticks += 1
        if service.ticks == 1:
            service.signal.wake()
        else:
            service.exhausted.set()
        return math.inf

    service.tick = tick
    await served(service)
    assert service.ticks == 2


async def test_a_signal_wakes_at_once_and_otherwise_after_the_delay():
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(math.inf))
    await asyncio.sleep(0)
    signal.wake()
    await asyncio.wait_for(waiting, 30)
    signal.clear()
    await asyncio.wait_for(signal.wait(0.001), 30)
    await asyncio.wait_for(signal.wait(0), 30)


async def test_nudges_are_not_passed_on_more_often_than_their_period():
    class Counting:
        wakes = 0
        second = asyncio.Event()

        def wake(self):
            self.wakes += 1
            if self.wakes == 2:
                self.second.set()

    signal = Counting()
    nudge = Nudge(signal, period=0.05)
    for _ in range(100):
        nudge()
    assert signal.wakes == 1
    await asyncio.wait_for(signal.second.wait(), 30)
    nudge.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a timerfd is Linux's own")
async def test_a_timerfd_completes_its_waiter_and_can_be_called_off():
    timer = timerfd(asyncio.get_running_loop())
    assert timer is not None
    loop = asyncio.get_running_loop()
    first = loop.create_future()
    timer(0.001, first)
    await asyncio.wait_for(first, 30)
    second = loop.create_future()
    timer(0.001, second)()
    third = loop.create_future()
    timer(0.002, third)
    await asyncio.wait_for(third, 30)
    assert not second.done()
    timer.close()


async def test_the_loops_own_timer_serves_where_there_is_no_other():
    waiter = asyncio.get_running_loop().create_future()
    sleep_by_loop(0.001, waiter)
    await asyncio.wait_for(waiter, 30)
    called_off = asyncio.get_running_loop().create_future()
    sleep_by_loop(0.001, called_off)()
    await asyncio.sleep(0.005)
    assert not called_off.done()


class Line:
    """What a batcher sends to: remembers the batches, and answers when it is let."""

    def __init__(self):
        self.batches = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, items):
        self.batches.append(list(items))
        await asyncio.sleep(0)
        await self.gate.wait()
        if "bad" in items:
            raise ValueError("bad batch")
        return [f"{item}!" for item in items]


async def test_a_lone_item_is_sent_at_once():
    line = Line()
    batcher = Batcher(line.send)
    assert await batcher("a") == "a!"
    assert await batcher("b") == "b!"
    assert line.batches == [["a"], ["b"]]


async def test_what_gathers_behind_a_call_is_sent_together():
    line = Line()
    line.gate.clear()
    batcher = Batcher(line.send, most=3)
    tasks = [asyncio.create_task(batcher(name)) for name in "abcdef"]
    await asyncio.sleep(0)
    line.gate.set()
    assert await asyncio.gather(*tasks) == [f"{name}!" for name in "abcdef"]
    assert line.batches == [["a"], ["b", "c", "d"], ["e", "f"]]


async def test_callers_who_were_answered_together_are_sent_together_again():
    line = Line()
    batcher = Batcher(line.send)

    async def twice(name):
        return [await batcher(name), await batcher(name)]

    await asyncio.gather(*(twice(name) for name in "abcd"))
    assert line.batches == [["a"], ["b", "c", "d", "a"], ["b", "c", "d"]]


async def test_two_calls_under_way_share_many_callers_by_halves():
    line = Line()
    batcher = Batcher(line.send, calls=2)
    await asyncio.gather(*(batcher(number) for number in range(3)))
    line.gate.clear()
    line.batches.clear()
    tasks = [asyncio.create_task(batcher(number)) for number in range(40)]
    for _ in range(4):  # the callers, then the end of their turn, then the calls
        await asyncio.sleep(0)
    assert line.batches == [list(range(20)), list(range(20, 40))]
    late = asyncio.create_task(batcher("late"))
    line.gate.set()
    assert await asyncio.gather(*tasks, late) == [f"{number}!" for number in range(40)] + ["late!"]
    assert line.batches[2:] == [["late"]]


async def test_an_item_that_cannot_be_sent_fails_its_own_caller_only():
    line = Line()
    line.gate.clear()
    batcher = Batcher(line.send, most=2)
    tasks = [asyncio.create_task(batcher(name)) for name in ("a", "bad", "b", "c")]
    await asyncio.sleep(0)
    line.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert type(results[1]) is ValueError
    assert results[:1] + results[2:] == ["a!", "b!", "c!"]
    assert await batcher("d") == "d!"


async def test_a_caller_that_gives_up_does_not_hinder_the_others():
    line = Line()
    line.gate.clear()
    batcher = Batcher(line.send)
    tasks = [asyncio.create_task(batcher(name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    line.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (results[0], results[2]) == ("a!", "c!")
    assert line.batches[1] == ["c"]
    assert await batcher("d") == "d!"


async def test_a_cancelled_first_caller_lets_the_next_batch_go():
    line = Line()
    line.gate.clear()
    batcher = Batcher(line.send)
    first = asyncio.create_task(batcher("a"))
    await asyncio.sleep(0)
    second = asyncio.create_task(batcher("b"))
    await asyncio.sleep(0)
    first.cancel()
    line.gate.set()
    assert await asyncio.wait_for(second, 30) == "b!"


def test_a_failure_is_bounded_and_begins_with_the_users_code():
    def user():
        raise ValueError("x" * 100_000)

    try:
        user()
    except ValueError as exc:
        failure = failure_of(exc)
    assert len(failure.message) < 5_000
    assert len(failure.traceback) < 25_000
    assert failure.type == "ValueError"
