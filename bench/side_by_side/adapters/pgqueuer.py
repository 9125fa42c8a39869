"""pgqueuer on PostgreSQL."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint

PACKAGES = ("pgqueuer", "asyncpg", "uvloop")
_BATCH = 100
_POOL = 10


def prepare(url: str) -> None:
    uvloop.run(_prepare(url))


async def _prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


class Client:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._queries = Queries(AsyncpgPoolDriver(await asyncpg.create_pool(self._url, min_size=1, max_size=_POOL)))

    async def submit(self, handler: str, payload: dict[str, Any]) -> None:
        await self._queries.enqueue(handler, json.dumps(payload).encode())

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        delay = timedelta(seconds=max(0.0, at - time.time()))
        await self._queries.enqueue(handler, json.dumps(payload).encode(), execute_after=delay)

    async def submit_many(self, handler: str, count: int) -> None:
        await self._queries.enqueue([handler] * count, [b"{}"] * count, [0] * count)


client = Client


def work(stint: Stint, notes: Notes) -> None:
    uvloop.run(_work(stint, notes))


async def _work(stint: Stint, notes: Notes) -> None:
    driver = AsyncpgPoolDriver(await asyncpg.create_pool(stint.url, min_size=1, max_size=_POOL))
    queuer = PgQueuer(driver)

    @queuer.entrypoint("noop")
    async def noop(_job: Any) -> None:
        notes.noop()

    @queuer.entrypoint("ping")
    async def ping(job: Any) -> None:
        notes.ping(**json.loads(job.payload))

    @queuer.entrypoint("alarm")
    async def alarm(job: Any) -> None:
        notes.alarm(**json.loads(job.payload))

    for name in range(stint.schedules):
        queuer.schedule(f"beat-{name}", f"* * * * * */{PERIOD}")(_beat(notes, name))
    await queuer.run(batch_size=_BATCH)


def _beat(notes: Notes, name: int) -> Any:
    async def beat(_schedule: Any) -> None:
        notes.beat(name)

    return beat
