"""The reporter, stepped by hand: how often it sends, what it sends again, and what keeps nobody from ending."""

import asyncio
import math
import random
import threading
from datetime import UTC, datetime

import pytest

from duly.errors import BackendUnavailable
from duly.model import Claim, LineSource, Node, Progress, Run, RunPolicy, SchedulerConfig, shift
from duly.model.event import RunProgressed, ServiceFailed
from duly.ports import StoreClock
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment
from duly.runtime.live_config import LiveConfig
from duly.runtime.outbox import Outbox
from duly.runtime.reporter import PERIOD, Reporter
from duly.testing.clock import ManualClock

START = datetime(2027, 3, 1, tzinfo=UTC)
LOG = LineSource.LOG


class Events(list):
    def __call__(self, event):
        self.append(event)

    def wants(self, kind):
        return True


class Store:
    """Takes reports, except in the first calls, and except of runs that it refuses or that are stale."""

    def __init__(self, failing=0, refuses=(), stale=()):
        self.failing = failing
        self.refuses = refuses
        self.stale = stale
        self.calls = []

    async def report(self, reports):
        self.calls.append([(each.run_id, each.progress, [line.text for line in each.lines]) for each in reports])
        if len(self.calls) <= self.failing:
            raise BackendUnavailable("away")
        if any(each.run_id in self.refuses for each in reports):
            raise ValueError("cannot be stored")
        return [each.run_id not in self.stale for each in reports]


class Stage:
    """A reporter with a clock that only the test moves."""

    def __init__(self, store, keep=200):
        self.clock = ManualClock(START)
        self.events = Events()
        self.store = store
        clock = StoreClock(self.clock, direct=True)
        outbox = Outbox(lambda: keep, clock)
        self.active_runs = ActiveRuns(outbox)
        live = LiveConfig(SchedulerConfig())
        env = Environment(Node("n", "h", 1, START), live, clock, self.events, random.Random(0))
        self.reporter = Reporter(env, store, self.active_runs, outbox)

    def run(self, number, **policy):
        run = Run(
            f"r{number}", "mail", "mail", START, START, policy=RunPolicy(**policy), fence=number, started_at=START
        )
        active = ActiveRun(Claim(run, number, START), None, 0.0, 15.0)
        self.active_runs.add(active)
        return active

    async def tick(self, seconds=0.0):
        self.clock.set(shift(self.clock.now(), seconds))
        return await self.reporter.tick()


async def test_nothing_is_sent_when_nothing_is_new():
    stage = Stage(Store())
    stage.run(1)
    assert await stage.tick(10) == math.inf
    assert stage.store.calls == []


async def test_all_runs_are_sent_together_at_most_once_a_second():
    stage = Stage(Store())
    first, second = stage.run(1), stage.run(2)
    first.write(LOG, "a")
    second.report(Progress(1))
    second.write(LOG, "b")
    assert 0 < await stage.tick() < 0.5, "lines of short runs are gathered"
    assert await stage.tick(0.5) == math.inf
    assert stage.store.calls == [[("r1", None, ["a"]), ("r2", Progress(1), ["b"])]]
    first.write(LOG, "c")
    left = await stage.tick(0.2)
    assert left == pytest.approx(PERIOD - 0.2)
    assert await stage.tick(left) == math.inf
    assert stage.store.calls[1:] == [[("r1", None, ["c"])]], "and only what is new"
    assert [event.progress for event in stage.events] == [Progress(1)]
    assert isinstance(stage.events[0], RunProgressed)


async def test_a_thread_wakes_the_reporter():
    stage = Stage(Store())
    active = stage.run(1)
    thread = threading.Thread(target=lambda: active.write(LOG, "from a thread"))
    waiting = asyncio.create_task(stage.reporter.signal.wait(math.inf))
    await asyncio.sleep(0)
    thread.start()
    async with asyncio.timeout(10):
        await waiting
    await stage.tick(1)
    assert stage.store.calls == [[("r1", None, ["from a thread"])]]


async def test_an_outage_loses_nothing_and_repeats_the_same_report():
    stage = Stage(Store(failing=2))
    active = stage.run(1)
    active.write(LOG, "a")
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await stage.tick(2)
        active.write(LOG, "b")
    await stage.tick(2)
    await stage.reporter.flush([active])
    assert stage.store.calls == [[("r1", None, ["a"])]] * 3 + [[("r1", None, ["b", "b"])]]
    assert not active.unreported


async def test_the_end_of_a_run_sends_what_is_left_and_takes_no_more():
    stage = Stage(Store(failing=1))
    active, other = stage.run(1), stage.run(2)
    active.write(LOG, "a")
    with pytest.raises(BackendUnavailable):
        await stage.reporter.flush([active, other])
    active.write(LOG, "too late")
    await stage.reporter.flush([active, other])
    await stage.reporter.flush([active, other])
    assert stage.store.calls == [[("r1", None, ["a"])]] * 2


async def test_a_report_that_the_store_refuses_keeps_nothing_from_ending():
    stage = Stage(Store(refuses={"r1"}))
    bad, good = stage.run(1), stage.run(2)
    for active in (bad, good):
        active.write(LOG, "x")
    await stage.reporter.flush([bad, good])
    assert stage.store.calls[-1] == [("r2", None, ["x"])]
    assert [type(event) for event in stage.events] == [ServiceFailed]
    assert not bad.unreported
    assert not good.unreported


async def test_a_stale_attempt_stops_reporting():
    stage = Stage(Store(stale={"r1"}))
    active = stage.run(1)
    active.write(LOG, "a")
    await stage.tick(1)
    active.write(LOG, "b")
    await stage.tick(2)
    assert len(stage.store.calls) == 1


async def test_a_job_may_keep_more_or_nothing():
    stage = Stage(Store(), keep=0)
    silent, kept = stage.run(1), stage.run(2, keep_logs=1)
    for active in (silent, kept):
        active.write(LOG, "a")
        active.write(LOG, "b")
    await stage.tick(1)
    assert stage.store.calls == [[("r2", None, ["b"])]]


async def test_a_run_that_writes_nothing_has_no_buffer():
    stage = Stage(Store())
    active = stage.run(1)
    assert active.lines is None
    assert not active.unreported
    assert "lines" not in vars(active)
