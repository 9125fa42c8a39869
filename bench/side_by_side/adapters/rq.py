"""RQ on Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker
from rq.cron import CronScheduler
from rq.scheduler import RQScheduler

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint

PACKAGES = ("rq", "redis", "hiredis")
_HERE = __name__
_notes = Notes()


def noop() -> None:
    _notes.noop()


def ping(number: int, sent: int) -> None:
    _notes.ping(number, sent)


def alarm(number: int, at: float) -> None:
    _notes.alarm(number, at)


def beat(name: int) -> None:
    _notes.beat(name)


class Client:
    def __init__(self, url: str) -> None:
        self._queue = Queue(connection=Redis.from_url(url))

    def open(self) -> None: ...

    def submit(self, handler: str, payload: dict[str, Any]) -> None:
        self._queue.enqueue_call(f"{_HERE}.{handler}", kwargs=payload, result_ttl=0)

    def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        when = datetime.fromtimestamp(at, UTC)
        self._queue.enqueue_at(when, f"{_HERE}.{handler}", kwargs=payload, result_ttl=0)

    def submit_many(self, handler: str, count: int) -> None:
        self._queue.enqueue_many([Queue.prepare_data(f"{_HERE}.{handler}", result_ttl=0) for _ in range(count)])


client = Client


def work(stint: Stint, notes: Notes) -> None:
    global _notes
    _notes = notes
    connection = Redis.from_url(stint.url)
    SimpleWorker([Queue(connection=connection)], connection=connection).work(logging_level="CRITICAL")


def keep_time(stint: Stint) -> None:
    connection = Redis.from_url(stint.url)
    if stint.kind == "alarm":
        scheduler = RQScheduler([Queue(connection=connection)], connection=connection)
        scheduler.acquire_locks()
        scheduler.work()
        return
    keeper = CronScheduler(connection=connection, logging_level="CRITICAL")
    for name in range(stint.schedules):
        every = f"* * * * * */{PERIOD}"
        keeper.register(beat, "default", args=(name,), cron=every, result_ttl=0, name=f"beat-{name}")
    keeper.start()
