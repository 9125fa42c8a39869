"""A loop that is blocked is noticed, whenever that begins; one that could not run is not blamed."""

import asyncio
import logging
import threading
import time
from itertools import count

import pytest

from duly import Scheduler, SchedulerConfig
from duly.model.event import LoopStalled
from duly.observe.metrics import MetricsRecorder
from duly.runtime.stalls import LoopWatch

LIMIT = 0.2


class Heard:
    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def wants(self, kind):
        return True


@pytest.fixture
async def watched():
    heard = Heard()
    watch = LoopWatch(heard, time.monotonic, LIMIT)
    watch.start()
    yield heard
    watch.close()


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.7, 0.95])
async def test_every_block_longer_than_the_limit_is_told_once_with_its_stack(watched, phase):
    await asyncio.sleep(LIMIT * (1 + phase))
    time.sleep(2 * LIMIT)  # noqa: ASYNC251  # that is the point
    await asyncio.sleep(0)
    [stalled] = watched.events
    assert stalled.seconds > LIMIT
    assert "time.sleep(2 * LIMIT)" in stalled.stack


async def test_a_loop_that_turns_is_left_alone():
    heard = Heard()
    watch = LoopWatch(heard, time.monotonic, 10.0)
    watch.start()
    for _ in range(5):
        await asyncio.sleep(0.3)
    watch.close()
    assert heard.events == []


async def test_a_process_that_was_paused_has_not_stalled():
    """A clock that leaps while no time was spent: nobody could have answered."""
    heard, leaps = Heard(), count(0.0, 1000.0)
    watch = LoopWatch(heard, lambda: next(leaps), LIMIT)
    await asyncio.to_thread(watch._await, threading.Event(), 0.0, LIMIT / 10)
    assert heard.events == []


def test_it_ends_with_a_loop_that_is_only_closed():
    async def watch():
        made = LoopWatch(Heard(), time.monotonic, LIMIT)
        made.start()
        return made

    loop = asyncio.new_event_loop()
    made = loop.run_until_complete(watch())
    loop.close()
    made._thread.join(30)
    assert not made._thread.is_alive()


async def test_a_handler_that_blocks_the_loop_is_an_event_a_log_line_and_a_number(url, caplog):
    scheduler = Scheduler(url, SchedulerConfig(lock_ttl=15.0, lock_refresh_interval=LIMIT))
    meters, stalls = MetricsRecorder(), []
    scheduler.subscribe(meters, LoopStalled)
    scheduler.subscribe(stalls.append, LoopStalled)

    @scheduler.job()
    async def blocking() -> None:
        time.sleep(1.5 * LIMIT)  # noqa: ASYNC251  # that is the point

    async with scheduler:
        for number in range(1, 4):
            await (await blocking.submit()).result(timeout=30)
            assert len(stalls) >= number
    assert meters.events["loop_stalls"] == len(stalls)
    lines = [record for record in caplog.records if "the event loop has not turned" in record.getMessage()]
    assert len(lines) == len(stalls)
    assert all(record.levelno == logging.WARNING for record in lines)
    assert "blocking" in lines[0].getMessage()
