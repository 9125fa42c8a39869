"""taskiq on Redis Streams, with the schedule source that its Redis package advises."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import uvloop
from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint

PACKAGES = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")
_ASYNC_TASKS = 100
_FROM_THE_FIRST = "0-0"


def _broker(url: str, notes: Notes) -> RedisStreamBroker:
    broker = RedisStreamBroker(url, consumer_id=_FROM_THE_FIRST).with_serializer(ORJSONSerializer())

    @broker.task("noop")
    async def noop() -> None:
        notes.noop()

    @broker.task("ping")
    async def ping(number: int, sent: int) -> None:
        notes.ping(number, sent)

    @broker.task("alarm")
    async def alarm(number: int, at: float) -> None:
        notes.alarm(number, at)

    @broker.task("beat")
    async def beat(name: int) -> None:
        notes.beat(name)

    return broker


class Client:
    def __init__(self, url: str) -> None:
        self._broker = _broker(url, Notes())
        self._source = ListRedisScheduleSource(url)

    async def open(self) -> None:
        self._tasks: dict[str, Any] = self._broker.get_all_tasks()
        await self._broker.startup()
        await self._source.startup()

    async def submit(self, handler: str, payload: dict[str, Any]) -> None:
        await self._tasks[handler].kiq(**payload)

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        await self._tasks[handler].schedule_by_time(self._source, datetime.fromtimestamp(at, UTC), **payload)


client = Client


def work(stint: Stint, notes: Notes) -> None:
    uvloop.run(_work(stint, notes))


async def _work(stint: Stint, notes: Notes) -> None:
    await run_receiver_task(
        _broker(stint.url, notes),
        max_async_tasks=_ASYNC_TASKS,
        validate_params=False,
        run_startup=True,
    )


def keep_time(stint: Stint) -> None:
    uvloop.run(_keep_time(stint))


async def _keep_time(stint: Stint) -> None:
    """Intervals count from the first look of the scheduler, so it starts just before an aligned instant."""
    broker, source = _broker(stint.url, Notes()), ListRedisScheduleSource(stint.url)
    await source.startup()
    beat: Any = broker.get_all_tasks()["beat"]
    for name in range(stint.schedules):
        await beat.schedule_by_interval(source, PERIOD, name)
    if stint.schedules:
        await asyncio.sleep((-time.time() - 0.7) % PERIOD)
    often = timedelta(seconds=1 if stint.kind == "alarm" else 60)
    await run_scheduler_task(TaskiqScheduler(broker, [source]), run_startup=True, interval=often)
