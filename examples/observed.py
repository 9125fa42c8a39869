"""A scheduler that tells your own logger, your own collector of metrics, and OpenTelemetry what it does."""

import logging
from collections import Counter

from duly import MetricsCollector, Scheduler
from duly.observe.otel import OpenTelemetry

scheduler = Scheduler("sqlite:///shop.db")


class Tally(MetricsCollector):
    """Only what matters here; everything else is not overridden."""

    def __init__(self) -> None:
        self.completed: Counter[str] = Counter()
        self.slowest = 0.0

    def job_completed(self, name: str, seconds: float) -> None:
        self.completed[name] += 1
        self.slowest = max(self.slowest, seconds)


tally = Tally()
scheduler.observe(logger=logging.getLogger("shop.jobs"), metrics=tally, tracer=OpenTelemetry())


@scheduler.job
async def work() -> str:
    return "done"
