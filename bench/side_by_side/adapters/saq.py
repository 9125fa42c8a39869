"""SAQ on Redis."""

from __future__ import annotations

from typing import Any

import uvloop
from saq import CronJob, Queue, Worker

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint

PACKAGES = ("saq", "redis", "hiredis", "uvloop")
_CONCURRENCY = 20
_NOTHING_KEPT = -1


class Client:
    def __init__(self, url: str) -> None:
        self._queue = Queue.from_url(url, max_concurrent_ops=50)

    async def open(self) -> None:
        await self._queue.connect()

    async def submit(self, handler: str, payload: dict[str, Any]) -> None:
        await self._queue.enqueue(handler, ttl=_NOTHING_KEPT, **payload)

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        await self._queue.enqueue(handler, ttl=_NOTHING_KEPT, scheduled=at, **payload)


client = Client


def work(stint: Stint, notes: Notes) -> None:
    uvloop.run(_work(stint, notes))


async def _work(stint: Stint, notes: Notes) -> None:
    async def noop(_ctx: Any) -> None:
        notes.noop()

    async def ping(_ctx: Any, *, number: int, sent: int) -> None:
        notes.ping(number, sent)

    async def alarm(_ctx: Any, *, number: int, at: float) -> None:
        notes.alarm(number, at)

    functions = [("noop", noop), ("ping", ping), ("alarm", alarm)]
    crons = [
        CronJob(_beat(notes, name), cron=f"* * * * * */{PERIOD}", ttl=_NOTHING_KEPT) for name in range(stint.schedules)
    ]
    queue = Queue.from_url(stint.url)
    await Worker(queue, functions, concurrency=_CONCURRENCY, cron_jobs=crons).start()


def _beat(notes: Notes, name: int) -> Any:
    async def beat(_ctx: Any) -> None:
        notes.beat(name)

    beat.__qualname__ = f"beat-{name}"
    return beat
