"""Celery on Redis."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from celery import Celery
from celery.schedules import schedule

from bench.side_by_side.adapters.notes import PERIOD, Notes, Stint
from bench.side_by_side.adapters.submitting import FIFTY

PACKAGES = ("celery", "kombu", "redis", "hiredis")
_PREFETCH = 128


def _app(url: str, notes: Notes) -> Celery:
    app = Celery("bench", broker=url, set_as_current=True)
    app.conf.update(
        broker_pool_limit=FIFTY,
        broker_connection_retry_on_startup=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        worker_disable_rate_limits=True,
        worker_prefetch_multiplier=_PREFETCH,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )
    handlers = {"noop": notes.noop, "ping": notes.ping, "alarm": notes.alarm, "beat": notes.beat}
    for name, handler in handlers.items():
        app.task(name=name, ignore_result=True)(_plain(handler))
    return app


def _plain(handler: Any) -> Any:
    def task(*arguments: Any, **keywords: Any) -> None:
        handler(*arguments, **keywords)

    return task


class Client:
    def __init__(self, url: str) -> None:
        self._app = _app(url, Notes())

    def open(self) -> None:
        self._tasks = {name: self._app.tasks[name] for name in ("noop", "ping", "alarm")}

    def submit(self, handler: str, payload: dict[str, Any]) -> None:
        self._tasks[handler].apply_async(kwargs=payload)

    def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        self._tasks[handler].apply_async(kwargs=payload, eta=datetime.fromtimestamp(at, UTC))


client = Client


def work(stint: Stint, notes: Notes) -> None:
    _app(stint.url, notes).worker_main(
        [
            "worker",
            "--pool=solo",
            "--loglevel=CRITICAL",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ]
    )


def keep_time(stint: Stint) -> None:
    """Beat, with intervals rounded to whole seconds and counted from its start, which is at an aligned instant."""
    app = _app(stint.url, Notes())
    app.conf.beat_schedule = {
        f"beat-{name}": {"task": "beat", "schedule": schedule(PERIOD, relative=True), "args": (name,)}
        for name in range(stint.schedules)
    }
    with tempfile.TemporaryDirectory() as folder:
        time.sleep(-time.time() % PERIOD)
        app.Beat(schedule=str(Path(folder) / "beat"), loglevel="CRITICAL", quiet=True).run()
