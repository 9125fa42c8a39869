"""procrastinate on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import uvloop
from procrastinate import App, PsycopgConnector

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint

PACKAGES = ("procrastinate", "psycopg", "uvloop")
_CONCURRENCY = 100
_POOL = 10


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    uvloop.run(_apply_schema(url))


async def _apply_schema(url: str) -> None:
    app = _app(url, Notes())
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


def _app(url: str, notes: Notes) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=_POOL))

    @app.task(name="noop", pass_context=False)
    async def noop() -> None:
        notes.noop()

    @app.task(name="ping")
    async def ping(number: int, sent: int) -> None:
        notes.ping(number, sent)

    @app.task(name="alarm")
    async def alarm(number: int, at: float) -> None:
        notes.alarm(number, at)

    @app.task(name="beat")
    async def beat(timestamp: int, name: int) -> None:
        notes.beat(name, timestamp)

    return app


class Client:
    def __init__(self, url: str) -> None:
        self._app = _app(url, Notes())

    async def open(self) -> None:
        await self._app.open_async()
        self._tasks = self._app.tasks

    async def submit(self, handler: str, payload: dict[str, Any]) -> None:
        await self._tasks[handler].defer_async(**payload)

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        when = datetime.fromtimestamp(at, UTC)
        await self._tasks[handler].configure(schedule_at=when).defer_async(**payload)

    async def submit_many(self, handler: str, count: int) -> None:
        await self._tasks[handler].batch_defer_async(*[{}] * count)


client = Client


def work(stint: Stint, notes: Notes) -> None:
    uvloop.run(_work(stint, notes))


async def _work(stint: Stint, notes: Notes) -> None:
    app = _app(stint.url, notes)
    for name in range(stint.schedules):
        every = f"* * * * * */{PERIOD}"
        app.periodic(cron=every, periodic_id=str(name), task_kwargs={"name": name})(app.tasks["beat"])
    async with app.open_async():
        await app.run_worker_async(concurrency=_CONCURRENCY, delete_jobs="always", install_signal_handlers=False)
