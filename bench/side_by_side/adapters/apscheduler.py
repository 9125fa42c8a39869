"""APScheduler 3 with its job store in Redis.

Its schedulers cannot share a job store: whoever adds a job must be the process that runs it. So the measurements where
a client submits to a running worker are made inside one process.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import uvloop
from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint
from bench.side_by_side.adapters.submitting import alarms, pings

PACKAGES = ("apscheduler", "redis", "hiredis", "uvloop")
_HERE = __name__
_notes = Notes()


async def noop() -> None:
    _notes.noop()


async def ping(number: int, sent: int) -> None:
    _notes.ping(number, sent)


async def alarm(number: int, at: float) -> None:
    _notes.alarm(number, at)


async def beat(name: int) -> None:
    _notes.beat(name)


def _scheduler(kind: type[Any], url: str) -> Any:
    address = urlsplit(url)
    store = RedisJobStore(host=address.hostname, port=address.port)
    return kind(jobstores={"default": store}, job_defaults={"misfire_grace_time": None}, timezone=UTC)


class Client:
    """Adds jobs to the store without running them."""

    def __init__(self, url: str) -> None:
        self._scheduler = _scheduler(BackgroundScheduler, url)

    def open(self) -> None:
        self._scheduler.start(paused=True)

    def submit(self, handler: str, payload: dict[str, Any]) -> None:
        self._scheduler.add_job(f"{_HERE}:{handler}", kwargs=payload)


client = Client


class Insider:
    """Adds jobs to the scheduler of its own process."""

    def __init__(self, scheduler: AsyncIOScheduler) -> None:
        self._scheduler = scheduler

    async def submit(self, handler: str, payload: dict[str, Any]) -> None:
        self._scheduler.add_job(f"{_HERE}:{handler}", kwargs=payload)

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        when = datetime.fromtimestamp(at, UTC)
        self._scheduler.add_job(f"{_HERE}:{handler}", "date", run_date=when, kwargs=payload)


def work(stint: Stint, notes: Notes) -> None:
    global _notes
    _notes = notes
    uvloop.run(_work(stint, notes))


async def _work(stint: Stint, notes: Notes) -> None:
    scheduler = _scheduler(AsyncIOScheduler, stint.url)
    notes.start_clock()
    scheduler.start()
    match stint.kind:
        case "ping":
            await pings(Insider(scheduler), stint.jobs)
        case "alarm":
            await alarms(Insider(scheduler), stint.jobs)
        case "beat":
            _add_beats(scheduler, stint.schedules)
    await asyncio.Event().wait()


def _add_beats(scheduler: AsyncIOScheduler, schedules: int) -> None:
    aligned = datetime.fromtimestamp(0, UTC)
    for name in range(schedules):
        scheduler.add_job(
            f"{_HERE}:beat", "interval", seconds=PERIOD, start_date=aligned, args=(name,), id=f"beat-{name}"
        )
