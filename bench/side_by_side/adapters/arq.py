"""arq on Redis."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import uvloop
from arq import cron, func
from arq.connections import RedisSettings, create_pool
from arq.worker import Worker

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint

PACKAGES = ("arq", "redis", "hiredis", "uvloop")
_MAX_JOBS = 2000


class Client:
    def __init__(self, url: str) -> None:
        self._settings = RedisSettings.from_dsn(url)

    async def open(self) -> None:
        self._pool = await create_pool(self._settings)

    async def submit(self, handler: str, payload: dict[str, Any]) -> None:
        await self._pool.enqueue_job(handler, **payload)

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        await self._pool.enqueue_job(handler, _defer_until=datetime.fromtimestamp(at, UTC), **payload)


client = Client


def work(stint: Stint, notes: Notes) -> None:
    uvloop.install()
    asyncio.set_event_loop(asyncio.new_event_loop())

    async def noop(_ctx: Any) -> None:
        notes.noop()

    async def ping(_ctx: Any, number: int, sent: int) -> None:
        notes.ping(number, sent)

    async def alarm(_ctx: Any, number: int, at: float) -> None:
        notes.alarm(number, at)

    Worker(
        [func(noop, name="noop"), func(ping, name="ping"), func(alarm, name="alarm")],
        redis_settings=RedisSettings.from_dsn(stint.url),
        cron_jobs=[
            cron(_beat(notes, name), name=f"beat-{name}", second=set(range(0, 60, PERIOD)), keep_result=0)
            for name in range(stint.schedules)
        ],
        max_jobs=_MAX_JOBS,
        keep_result=0,
        log_results=False,
    ).run()


def _beat(notes: Notes, name: int) -> Any:
    async def beat(_ctx: Any) -> None:
        notes.beat(name)

    return beat
