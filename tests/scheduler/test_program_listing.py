"""What a node writes when it has started: its jobs and when they are due, however many there are."""

import logging
import re

import pytest

from duly import Cron, Every, Scheduler, SchedulerConfig
from duly.scheduler.program_listing import MOST_LISTED, log_jobs


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, "duly.node")

    def lines() -> list[str]:
        [record] = [record for record in caplog.records if re.match(r"\d+ jobs?\b", record.getMessage())]
        return record.getMessage().splitlines()

    return lines


async def start(scheduler: Scheduler) -> None:
    async with scheduler:
        await log_jobs(await scheduler.opened(), scheduler.defined())


async def noop() -> None: ...


async def test_few_jobs_are_all_listed_the_next_one_first(told):
    scheduler = Scheduler("memory://", SchedulerConfig(timezone="Europe/Berlin"))
    scheduler.job(name="mail")(noop)
    scheduler.job(Cron("30 2 1 1 *"), name="yearly")(noop)
    scheduler.job(Every(seconds=5), name="often")(noop)
    async with scheduler.client():
        await scheduler.register(scheduler.job(Every(hours=1), name="halted")(noop).job)
        await scheduler.pause("halted")
    await start(scheduler)
    first, often, yearly, *rest = told()
    assert first == "4 jobs"
    assert re.fullmatch(r"    often   every 5 seconds +next \d\d:\d\d:\d\d \(in .*\)", often)
    assert re.fullmatch(r"    yearly  at 02:30 on .*  next \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(in \d+ days\)", yearly)
    assert sorted(line.split()[0] for line in rest) == ["halted", "mail"]
    assert "when it is submitted" in "".join(rest)
    assert "paused" in "".join(rest)


async def test_of_thousands_the_next_few_are_listed(told):
    scheduler = Scheduler("memory://")
    for number in range(2000):
        scheduler.job(Every(seconds=60 + number), name=f"job{number}")(noop)
    await start(scheduler)
    first, *rest = told()
    assert first == "2000 jobs"
    assert 2 <= len(rest) <= MOST_LISTED
    assert re.fullmatch(r"    job\d+ +next \d\d:\d\d:\d\d \(in .*\)", rest[0])
    assert rest[-1] == f"    … {2000 - len(rest) + 1} more: see `duly jobs`"


async def test_a_program_without_jobs_says_so(told):
    await start(Scheduler("memory://"))
    assert told() == ["0 jobs"]


async def test_nothing_is_read_if_nobody_reads_it(caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "duly.node")
    async with Scheduler("memory://").client() as scheduler:
        client = await scheduler.opened()
        with monkeypatch.context() as patched:
            patched.setattr(client, "backend", None)
            await log_jobs(client, ["a"])
    assert not caplog.records
