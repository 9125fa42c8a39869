"""dramatiq on Redis."""

from __future__ import annotations

import math
import time
from typing import Any

from dramatiq import Worker, actor, set_broker
from dramatiq.brokers.redis import RedisBroker

from bench.side_by_side.adapters.notes import Notes, Stint

PACKAGES = ("dramatiq", "redis", "hiredis")
_THREADS = 8
_PREFETCH = 200


def _actors(url: str, notes: Notes) -> tuple[RedisBroker, dict[str, Any]]:
    broker = RedisBroker(url=url)
    set_broker(broker)
    handlers = {"noop": notes.noop, "ping": notes.ping, "alarm": notes.alarm}
    return broker, {name: actor(handler, actor_name=name, broker=broker) for name, handler in handlers.items()}


class Client:
    def __init__(self, url: str) -> None:
        _, self._actors = _actors(url, Notes())

    def open(self) -> None: ...

    def submit(self, handler: str, payload: dict[str, Any]) -> None:
        self._actors[handler].send(**payload)

    def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None:
        delay = max(0, math.ceil((at - time.time()) * 1000))
        self._actors[handler].send_with_options(kwargs=payload, delay=delay)


client = Client


def work(stint: Stint, notes: Notes) -> None:
    broker, _ = _actors(stint.url, notes)
    worker = Worker(broker, worker_threads=_THREADS)
    worker.queue_prefetch = _PREFETCH  # what the variable dramatiq_queue_prefetch sets
    worker.start()
    while True:
        time.sleep(60)
