"""A user's own collector of metrics."""

import asyncio
import importlib
from pathlib import Path

import pytest
from tests.conftest import eventually

from duly import MetricsCollector, RetryPolicy, RunCancelled, RunFailed, Scheduler


class Kept(MetricsCollector):
    """Writes down what it is told; what it does not override is heard by nobody."""

    def __init__(self):
        self.told = []

    def job_started(self, name, late):
        self.told.append(("started", name, late >= 0))

    def job_completed(self, name, seconds):
        self.told.append(("completed", name, seconds >= 0))

    def job_failed(self, name, error):
        self.told.append(("failed", name, f"{error.type}: {error.message}"))

    def job_retried(self, name, error):
        self.told.append(("retried", name, error.type))

    def job_cancelled(self, name):
        self.told.append(("cancelled", name))

    def leader_changed(self, leads):
        self.told.append(("leads", leads))

    def runs_settled(self, count, seconds):
        self.told.append(("settled", count))

    def of(self, *words):
        return [entry for entry in self.told if entry[0] in words]


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def scheduler(kept):
    scheduler = Scheduler("memory://")
    scheduler.observe(metrics=kept)

    @scheduler.job
    async def work() -> None: ...

    @scheduler.job(retry=RetryPolicy.fixed(1, 0.01))
    async def fail() -> None:
        raise ValueError("wrong")

    @scheduler.job
    async def linger() -> None:
        await asyncio.Event().wait()

    return scheduler


async def test_a_collector_hears_of_every_attempt_and_its_end(scheduler, kept):
    async with scheduler:
        await (await scheduler.submit("work")).result(timeout=30)
        with pytest.raises(RunFailed):
            await (await scheduler.submit("fail")).result(timeout=30)
    assert kept.of("started", "completed", "failed", "retried") == [
        ("started", "work", True),
        ("completed", "work", True),
        ("started", "fail", True),
        ("retried", "fail", "ValueError"),
        ("started", "fail", True),
        ("failed", "fail", "ValueError: wrong"),
    ]
    assert kept.of("leads")[0] == ("leads", True)
    assert sum(count for _, count in kept.of("settled")) == 3


async def test_a_cancelled_run_is_neither_completed_nor_failed(scheduler, kept):
    async with scheduler:
        handle = await scheduler.submit("linger")

        async def started():
            return kept.of("started")

        await eventually(started)
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result(timeout=30)
    assert kept.of("cancelled", "failed", "completed") == [("cancelled", "linger")]


async def test_a_collector_that_fails_is_told_and_the_run_completes(scheduler, kept, caplog):
    kept.job_completed = lambda name, seconds: 1 / 0
    async with scheduler:
        await (await scheduler.submit("work")).result(timeout=30)
    assert "a subscriber failed on RunEnded" in caplog.text


async def test_the_example_is_told(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    observed = importlib.import_module("observed")
    async with observed.scheduler:
        assert await (await observed.work.submit()).result(timeout=30) == "done"
    assert observed.tally.completed == {"work": 1}
